// SPDX-License-Identifier: BSD-3-Clause
//
// Files as C++ programs use them: std::fstream and std::filesystem. libstdc++ opens and closes by
// stdio, and reads, writes and seeks by calls of its own.
//
//   fstream DIRECTORY PLUGIN     (an empty directory on a disk)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

void Show(const std::string& what, long long value) {
  std::cout << what << " = " << value << std::endl;
}

// With the calls of another way in.
void ShowFile(const char* path) {
  struct stat st;
  if (stat(path, &st) != 0) {
    std::cout << path << ": errno " << errno << std::endl;
    return;
  }
  const int fd = open(path, O_RDONLY);
  std::vector<char> bytes(static_cast<size_t>(st.st_size) + 1);
  const ssize_t count = read(fd, bytes.data(), bytes.size());
  close(fd);
  unsigned sum = 0;
  bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  for (const char byte : bytes) sum = sum * 31 + static_cast<unsigned char>(byte);
  std::cout << path << ": size " << st.st_size << " read " << count << " sum " << sum << std::endl;
}

void CheckModes() {
  using std::ios;
  const ios::openmode modes[] = {ios::in,
                                 ios::out,
                                 ios::out | ios::app,
                                 ios::app,
                                 ios::out | ios::trunc,
                                 ios::in | ios::out,
                                 ios::in | ios::out | ios::trunc,
                                 ios::in | ios::out | ios::app,
                                 ios::in | ios::out | ios::ate,
                                 ios::in | ios::trunc};
  for (const bool exists : {true, false}) {
    for (const ios::openmode mode : modes) {
      fs::remove("m");
      if (exists) std::ofstream("m") << "0123456789";
      std::fstream stream("m", mode);
      Show("mode " + std::to_string(mode) + " open", stream.is_open());
      Show("get", stream.tellg());
      Show("byte", stream.get());
      stream.clear();
      stream.seekp(0, ios::cur);
      stream << "xyz";
      Show("put", stream.tellp());
      stream.flush();
      ShowFile("m");
      stream.close();
      ShowFile("m");
    }
  }
}

void CheckData() {
  std::fstream stream("d", std::ios::in | std::ios::out | std::ios::trunc);
  const std::string large(200000, 'l');
  stream << "small " << 42 << ' ';
  stream.write(large.data(), static_cast<std::streamsize>(large.size()));  // past the buffer
  stream << " end\nsecond line\n";
  Show("tellp", stream.tellp());
  stream.seekg(0);
  std::string word;
  int number = 0;
  stream >> word >> number;
  Show(word, number);
  stream.seekg(-12, std::ios::end);
  std::getline(stream, word);
  std::cout << word << std::endl;
  stream.seekg(0);
  Show("available", stream.rdbuf()->in_avail());
  stream.seekp(3);
  stream << "OVER" << std::flush;
  Show("size", static_cast<long long>(fs::file_size("d")));

  // Beside a descriptor and another stream.
  const int fd = open("d", O_RDWR | O_APPEND);
  Show("write", write(fd, "raw\n", 4));
  std::ifstream reader("d", std::ios::ate);
  Show("end", reader.tellg());
  reader.seekg(-4, std::ios::end);
  reader >> word;
  std::cout << word << std::endl;
  stream.seekp(0, std::ios::end);
  stream << "last" << std::flush;
  reader.clear();
  reader >> word;
  std::cout << word << std::endl;
  std::vector<char> all;
  reader.clear();
  reader.seekg(0);
  all.assign(std::istreambuf_iterator<char>(reader), {});
  Show("all", static_cast<long long>(all.size()));
  close(fd);
  stream.close();
  ShowFile("d");

  // The number is free for the next one.
  const int next = open("e", O_RDWR | O_CREAT | O_TRUNC, 0644);
  Show("write", write(next, "another", 7));
  std::ofstream appended("d", std::ios::app);
  appended << "appended";
  appended.close();
  close(next);
  ShowFile("d");
  ShowFile("e");

  std::wofstream wide("w");
  wide << L"wide characters" << std::endl;
  wide.close();
  ShowFile("w");
}

void CheckFilesystem() {
  std::ofstream stream("f1");
  stream << "copied before it is closed" << std::flush;
  Show("copied", fs::copy_file("f1", "f2"));
  stream << ", and on" << std::flush;
  Show("size", static_cast<long long>(fs::file_size("f1")));
  fs::resize_file("f1", 10);
  stream << "!" << std::flush;
  fs::rename("f1", "f3");
  stream << " renamed" << std::flush;
  fs::create_hard_link("f3", "f4");
  Show("links", static_cast<long long>(fs::hard_link_count("f3")));
  stream.close();
  Show("removed", fs::remove("f4"));
  Show("copied", fs::copy_file("f3", "f2", fs::copy_options::overwrite_existing));
  ShowFile("f2");
  ShowFile("f3");
  fs::create_directory("folder");
  std::ofstream inner("folder/inner");
  inner << "in a folder" << std::flush;
  fs::rename("folder", "renamed");
  inner << " of another name" << std::flush;
  for (const auto& entry : fs::recursive_directory_iterator("renamed")) {
    Show(entry.path(), static_cast<long long>(entry.file_size()));
  }
  inner.close();
  ShowFile("renamed/inner");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  fs::current_path(argv[1]);
  CheckModes();
  CheckData();
  CheckFilesystem();
  // Closed by its destructor, after main.
  static std::ofstream last("last");
  last << "not flushed by anybody";
}
