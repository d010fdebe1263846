// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/http.h"

#include <curl/curl.h>

#include <memory>
#include <new>

namespace nvcache::mirror {
namespace {

// Once for the process; libcurl has no use for an end.
void InitializeCurl() {
  static const CURLcode done = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (done != CURLE_OK) throw std::bad_alloc();
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, FreeList>;

void Append(List* list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list->get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  (void)list->release();
  list->reset(longer);
}

List Headers(const std::string& token) {
  List list;
  Append(&list, "Content-Type: application/json");
  Append(&list, "Expect:");
  if (!token.empty()) Append(&list, "Authorization: " + token);
  return list;
}

size_t Take(char* bytes, size_t, size_t count, void* body) {
  auto* text = static_cast<std::string*>(body);
  if (count > kMaxAnswer - text->size()) return 0;
  text->append(bytes, count);
  return count;
}

bool IsUnsent(CURL* easy, CURLcode code, bool tls) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return true;
    default:
      break;
  }
  curl_off_t connected = 0;  // us; 0: not yet
  curl_easy_getinfo(easy, tls ? CURLINFO_APPCONNECT_TIME_T : CURLINFO_CONNECT_TIME_T, &connected);
  return connected == 0;
}

}  // namespace

Http::Http(const EtcdOptions& options) : options_(options) {
  InitializeCurl();
  multi_ = curl_multi_init();
  if (multi_ == nullptr) throw std::bad_alloc();
}

Http::~Http() { curl_multi_cleanup(static_cast<CURLM*>(multi_)); }

void Http::Stop() {
  stopped_ = true;
  curl_multi_wakeup(static_cast<CURLM*>(multi_));
}

void Http::Configure(void* easy, const Request& request) const {
  const auto set = [easy](CURLoption option, auto value) {
    curl_easy_setopt(static_cast<CURL*>(easy), option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
  set(CURLOPT_FRESH_CONNECT, 1L);
  set(CURLOPT_FORBID_REUSE, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  // A resolver that does not answer is left behind.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.whole.count()));
  set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  if (!options_.ca.empty()) set(CURLOPT_CAINFO, options_.ca.c_str());
  if (!options_.certificate.empty()) set(CURLOPT_SSLCERT, options_.certificate.c_str());
  if (!options_.key.empty()) set(CURLOPT_SSLKEY, options_.key.c_str());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
  set(CURLOPT_POSTFIELDS, request.body.c_str());
  set(CURLOPT_WRITEFUNCTION, &Take);
}

int Http::Run(void* easy) {
  CURLM* multi = static_cast<CURLM*>(multi_);
  if (curl_multi_add_handle(multi, static_cast<CURL*>(easy)) != CURLM_OK) return CURLE_FAILED_INIT;
  CURLcode code = CURLE_ABORTED_BY_CALLBACK;
  while (!stopped_) {
    int running = 0;
    if (curl_multi_perform(multi, &running) != CURLM_OK) break;
    if (running == 0) {
      int left = 0;
      const CURLMsg* message = curl_multi_info_read(multi, &left);
      if (message != nullptr && message->msg == CURLMSG_DONE) code = message->data.result;
      break;
    }
    if (curl_multi_poll(multi, nullptr, 0, 1000, nullptr) != CURLM_OK) break;
  }
  return code;
}

Reply Http::Post(const Request& request) {
  Reply reply;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (easy == nullptr) throw std::bad_alloc();
  Configure(easy.get(), request);
  const List headers = Headers(request.token);
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &reply.body);
  const auto code = static_cast<CURLcode>(Run(easy.get()));
  reply.sent = code == CURLE_OK || !IsUnsent(easy.get(), code, request.url.starts_with("https:"));
  if (code == CURLE_OK) {
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  } else if (code == CURLE_WRITE_ERROR) {
    reply.error = "the answer is longer than " + std::to_string(kMaxAnswer) + " bytes";
  } else {
    reply.error = error[0] != '\0' ? error : curl_easy_strerror(code);
  }
  curl_multi_remove_handle(static_cast<CURLM*>(multi_), easy.get());
  return reply;
}

}  // namespace nvcache::mirror
