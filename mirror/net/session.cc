// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/session.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "mirror/core/error.h"

// GnuTLS tests itself when it is loaded, which takes longer than all else that a command does at
// its start. Those that use it wait for that when they do.
GNUTLS_SKIP_GLOBAL_INIT

namespace nvcache::mirror {

namespace {

// Once in a process, and never undone.
void UseGnutls() {
  static const int status = gnutls_global_init();
  if (status != 0) throw NetError(std::string("GnuTLS cannot be used: ") + gnutls_strerror(status));
}

class PlainSession : public Session {
 public:
  explicit PlainSession(int fd) : fd_(fd) {}
  Io Handshake() override { return Io::kDone; }
  bool WantsToWrite() const override { return false; }
  bool HasMore() const override { return false; }
  void Finish() override {}
  std::string identity() const override { return ""; }
  std::string why() const override { return std::generic_category().message(error_); }

  Io Receive(uint8_t* bytes, size_t n, size_t* received) override {
    const ssize_t got = recv(fd_, bytes, n, 0);
    if (got == 0) return Io::kEnded;
    return Ended(got, received);
  }
  Io Send(const uint8_t* bytes, size_t n, size_t* sent) override {
    return Ended(send(fd_, bytes, n, MSG_NOSIGNAL), sent);
  }

 private:
  Io Ended(ssize_t result, size_t* n) {
    if (result >= 0) {
      *n = static_cast<size_t>(result);
      return Io::kDone;
    }
    error_ = errno;
    return error_ == EAGAIN || error_ == EINTR ? Io::kAgain : Io::kFailed;
  }

  int fd_;
  int error_ = 0;
};

// No certificates, no other key exchange, nothing older than TLS 1.3. Keys are for SHA-256, so
// AES-256 is not among the ciphers. The exchange of ephemeral keys makes what was recorded useless
// to a thief of the key.
constexpr const char* kPriority =
    "NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:+ECDHE-PSK:+GROUP-X25519:"
    "+GROUP-SECP256R1:+SIGN-ALL";

class TlsSession : public Session {
 public:
  explicit TlsSession(gnutls_session_t session) : session_(session) {}
  ~TlsSession() override { gnutls_deinit(session_); }

  Io Handshake() override { return Ended(gnutls_handshake(session_)); }
  bool WantsToWrite() const override { return gnutls_record_get_direction(session_) == 1; }
  bool HasMore() const override { return gnutls_record_check_pending(session_) != 0; }
  void Finish() override { gnutls_bye(session_, GNUTLS_SHUT_WR); }
  std::string why() const override {
    if (error_ == GNUTLS_E_FATAL_ALERT_RECEIVED) {
      const char* alert = gnutls_alert_get_name(gnutls_alert_get(session_));
      return std::string("the other side says: ") + (alert != nullptr ? alert : "?");
    }
    return gnutls_strerror(error_);
  }
  std::string identity() const override {
    gnutls_datum_t name = {};
    if (gnutls_psk_server_get_username2(session_, &name) != 0) return "";
    return {reinterpret_cast<const char*>(name.data), name.size};
  }

  Io Receive(uint8_t* bytes, size_t n, size_t* received) override {
    const ssize_t got = gnutls_record_recv(session_, bytes, n);
    if (got == 0 || got == GNUTLS_E_PREMATURE_TERMINATION) return Io::kEnded;
    if (got < 0) return Ended(static_cast<int>(got));
    *received = static_cast<size_t>(got);
    return Io::kDone;
  }
  Io Send(const uint8_t* bytes, size_t n, size_t* sent) override {
    // A record that is on its way is asked for by nothing.
    const ssize_t done = is_sending_ ? gnutls_record_send(session_, nullptr, 0)
                                     : gnutls_record_send(session_, bytes, n);
    is_sending_ = done == GNUTLS_E_AGAIN || done == GNUTLS_E_INTERRUPTED;
    if (done < 0) return Ended(static_cast<int>(done));
    *sent = static_cast<size_t>(done);
    return Io::kDone;
  }

 private:
  Io Ended(int status) {
    if (status >= 0) return Io::kDone;
    error_ = status;
    return gnutls_error_is_fatal(status) == 0 ? Io::kAgain : Io::kFailed;
  }

  gnutls_session_t session_;
  int error_ = 0;
  bool is_sending_ = false;
};

gnutls_session_t NewSession(int fd, unsigned flags) {
  gnutls_session_t session = nullptr;
  if (gnutls_init(&session, flags | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS) != 0) {
    return nullptr;
  }
  if (gnutls_priority_set_direct(session, kPriority, nullptr) != 0) {
    gnutls_deinit(session);
    return nullptr;
  }
  gnutls_transport_set_int(session, fd);
  gnutls_handshake_set_timeout(session, 0);  // the loop has the clock
  return session;
}

int Give(const void* bytes, size_t n, gnutls_datum_t* datum) {
  datum->data = static_cast<unsigned char*>(gnutls_malloc(n));
  if (datum->data == nullptr) return GNUTLS_E_MEMORY_ERROR;
  datum->size = static_cast<unsigned>(n);
  std::copy_n(static_cast<const unsigned char*>(bytes), n, datum->data);
  return 0;
}

class ServerTls : public Tls {
 public:
  explicit ServerTls(std::vector<Key> keys) : keys_(std::move(keys)) {
    if (gnutls_psk_allocate_server_credentials(&credentials_) != 0) throw std::bad_alloc();
    gnutls_psk_set_server_credentials_function2(credentials_, Find);
  }
  ~ServerTls() override { gnutls_psk_free_server_credentials(credentials_); }

  std::unique_ptr<Session> MakeSession(int fd) override {
    gnutls_session_t session = NewSession(fd, GNUTLS_SERVER);
    if (session == nullptr) return nullptr;
    gnutls_session_set_ptr(session, this);
    gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials_);
    return std::make_unique<TlsSession>(session);
  }

 private:
  // A stranger gets a key that nobody has, and so is not told which identities there are.
  static int Find(gnutls_session_t session, const gnutls_datum_t* name, gnutls_datum_t* secret) {
    const auto* self = static_cast<const ServerTls*>(gnutls_session_get_ptr(session));
    const std::string identity(reinterpret_cast<const char*>(name->data), name->size);
    for (const Key& key : self->keys_) {
      if (key.identity == identity) return Give(key.secret.data(), key.secret.size(), secret);
    }
    std::array<unsigned char, 32> random;
    if (gnutls_rnd(GNUTLS_RND_KEY, random.data(), random.size()) != 0) return -1;
    return Give(random.data(), random.size(), secret);
  }

  std::vector<Key> keys_;
  gnutls_psk_server_credentials_t credentials_ = nullptr;
};

class ClientTls : public Tls {
 public:
  explicit ClientTls(const Key& key) {
    if (gnutls_psk_allocate_client_credentials(&credentials_) != 0) throw std::bad_alloc();
    std::string identity = key.identity;
    std::vector<uint8_t> secret = key.secret;
    const gnutls_datum_t name = {reinterpret_cast<unsigned char*>(identity.data()),
                                 static_cast<unsigned>(identity.size())};
    const gnutls_datum_t bytes = {secret.data(), static_cast<unsigned>(secret.size())};
    if (gnutls_psk_set_client_credentials2(credentials_, &name, &bytes, GNUTLS_PSK_KEY_RAW) != 0) {
      gnutls_psk_free_client_credentials(credentials_);
      throw std::bad_alloc();
    }
  }
  ~ClientTls() override { gnutls_psk_free_client_credentials(credentials_); }

  std::unique_ptr<Session> MakeSession(int fd) override {
    gnutls_session_t session = NewSession(fd, GNUTLS_CLIENT);
    if (session == nullptr) return nullptr;
    gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials_);
    return std::make_unique<TlsSession>(session);
  }

 private:
  gnutls_psk_client_credentials_t credentials_ = nullptr;
};

}  // namespace

std::unique_ptr<Session> MakePlainSession(int fd) { return std::make_unique<PlainSession>(fd); }

std::unique_ptr<Tls> MakeServerTls(std::vector<Key> keys) {
  UseGnutls();
  return std::make_unique<ServerTls>(std::move(keys));
}

std::unique_ptr<Tls> MakeClientTls(const Key& key) {
  UseGnutls();
  return std::make_unique<ClientTls>(key);
}

}  // namespace nvcache::mirror
