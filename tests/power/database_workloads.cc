// SPDX-License-Identifier: BSD-3-Clause
//
// sqlite-wal, sqlite-delete: one transaction after the other, each a row and a change of an older
//     one. The database is sound and has the state after one of them.
// rocksdb: synced writes to a few hundred keys. Every key has the newest value.
#include <rocksdb/c.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

unsigned long long Long(uint64_t n) { return n; }

std::string Hex(uint64_t seed, uint64_t number, uint64_t most) {
  Random random(seed ^ number);
  std::string text = std::to_string(number) + ".";
  for (uint64_t n = random.Length(most); n > 0; --n) {
    text += "0123456789abcdef"[random.Below(16)];
  }
  return text;
}

class Sqlite : public Workload {
 public:
  Sqlite(std::string name, std::string folder, uint64_t seed, Promise promise, bool wal)
      : Workload(std::move(name), std::move(folder), seed, promise), wal_(wal) {}

  void Run(uint64_t done) override {
    sqlite3* db = Open();
    Execute(db, wal_ ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE");
    // EXTRA: SQLite does not promise a commit without it, in this mode, after a power failure.
    Execute(db, promise() == Promise::kNothing ? "PRAGMA synchronous=OFF"
                : wal_                         ? "PRAGMA synchronous=FULL"
                                               : "PRAGMA synchronous=EXTRA");
    Execute(db, "PRAGMA wal_autocheckpoint=50");
    Execute(db, "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v TEXT, changed INTEGER)");
    Execute(db, "CREATE INDEX IF NOT EXISTS i ON t(v)");
    for (uint64_t row = done + 1;; ++row) {
      Execute(db, "BEGIN;INSERT INTO t VALUES(" + std::to_string(row) + ",'" + Value(row) +
                      "',0);UPDATE t SET changed=" + std::to_string(row) +
                      " WHERE id=" + std::to_string(Changed(row)) + ";COMMIT");
      Acknowledge(row);
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    if (::access(Path("db").c_str(), F_OK) != 0) {
      return acknowledged == 0 ? Good(0) : Bad("the database is not there");
    }
    sqlite3* db = Open();
    Verdict verdict = CheckOpen(db, acknowledged);
    sqlite3_close(db);
    // A checker is a program without NVCache: a log that it has removed must not come back under
    // the name of a new one.
    SyncFolder();
    return verdict;
  }

 private:
  std::string Value(uint64_t row) const { return Hex(seed(), row, 1500); }
  uint64_t Changed(uint64_t row) const { return 1 + Random(seed() ^ row << 24).Below(row); }

  sqlite3* Open() const {
    sqlite3* db = nullptr;
    if (sqlite3_open(Path("db").c_str(), &db) != SQLITE_OK) Die("sqlite3_open");
    return db;
  }
  void Execute(sqlite3* db, const std::string& sql) const {
    char* error = nullptr;
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error) != SQLITE_OK) Die(error);
  }

  Verdict CheckOpen(sqlite3* db, uint64_t acknowledged) {
    std::string sound;
    const auto take = [](void* text, int, char** columns, char**) {
      *static_cast<std::string*>(text) += columns[0];
      return 0;
    };
    if (sqlite3_exec(db, "PRAGMA integrity_check", take, &sound, nullptr) != SQLITE_OK) {
      return Bad("integrity_check: %s", sqlite3_errmsg(db));
    }
    if (sound != "ok") return Bad("integrity_check: %.400s", sound.c_str());
    sqlite3_stmt* rows = nullptr;
    if (sqlite3_prepare_v2(db, "SELECT id, v, changed FROM t ORDER BY id", -1, &rows, nullptr) !=
        SQLITE_OK) {
      return acknowledged == 0 ? Good(0) : Bad("the table is not there: %s", sqlite3_errmsg(db));
    }
    std::vector<uint64_t> changed = {0};
    uint64_t count = 0;
    Verdict verdict = Good(0);
    while (verdict.ok && sqlite3_step(rows) == SQLITE_ROW) {
      ++count;
      if (static_cast<uint64_t>(sqlite3_column_int64(rows, 0)) != count) {
        verdict = Bad("row %llu is missing, later ones are there", Long(count));
      } else if (Value(count) != reinterpret_cast<const char*>(sqlite3_column_text(rows, 1))) {
        verdict = Bad("row %llu is wrong", Long(count));
      }
      changed.push_back(static_cast<uint64_t>(sqlite3_column_int64(rows, 2)));
    }
    sqlite3_finalize(rows);
    if (!verdict.ok) return verdict;
    if (count < acknowledged) {
      return Bad("%llu rows, %llu are acknowledged", Long(count), Long(acknowledged));
    }
    std::vector<uint64_t> expected(count + 1);
    for (uint64_t row = 1; row <= count; ++row) expected[Changed(row)] = row;
    for (uint64_t row = 1; row <= count; ++row) {
      if (changed[row] != expected[row]) {
        return Bad("row %llu was changed with row %llu, and has %llu", Long(row),
                   Long(expected[row]), Long(changed[row]));
      }
    }
    return Good(count);
  }

  const bool wal_;
};

class Rocksdb : public Workload {
 public:
  using Workload::Workload;

  void Run(uint64_t done) override {
    rocksdb_options_t* options = Options();
    char* error = nullptr;
    rocksdb_t* db = rocksdb_open(options, folder().c_str(), &error);
    if (error != nullptr) Die(error);
    rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(write, promise() != Promise::kNothing);
    for (uint64_t number = done + 1;; ++number) {
      const std::string key = Key(number % kKeys), value = Value(number);
      rocksdb_put(db, write, key.data(), key.size(), value.data(), value.size(), &error);
      if (error != nullptr) Die(error);
      Acknowledge(number);
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    if (::access(Path("CURRENT").c_str(), F_OK) != 0) {
      return acknowledged == 0 ? Good(0) : Bad("CURRENT is not there");
    }
    char* error = nullptr;
    rocksdb_t* db = rocksdb_open_for_read_only(Options(), folder().c_str(), 0, &error);
    if (error != nullptr) return Bad("open: %.400s", error);
    rocksdb_readoptions_t* read = rocksdb_readoptions_create();
    std::vector<std::string> values(kKeys);
    uint64_t newest = 0;
    for (uint64_t i = 0; i < kKeys; ++i) {
      size_t length = 0;
      const std::string key = Key(i);
      char* value = rocksdb_get(db, read, key.data(), key.size(), &length, &error);
      if (error != nullptr) return Bad("get: %.400s", error);
      if (value == nullptr) continue;
      values[i].assign(value, length);
      rocksdb_free(value);
      newest = std::max<uint64_t>(newest, std::strtoull(values[i].c_str(), nullptr, 10));
    }
    rocksdb_readoptions_destroy(read);
    rocksdb_close(db);
    if (newest < acknowledged) {
      return Bad("write %llu is the newest, %llu are acknowledged", Long(newest),
                 Long(acknowledged));
    }
    for (uint64_t back = 0; back < kKeys && back < newest; ++back) {
      const uint64_t number = newest - back;
      if (values[number % kKeys] != Value(number)) {
        return Bad("write %llu is missing, %llu is there; key %llu has '%.40s'", Long(number),
                   Long(newest), Long(number % kKeys), values[number % kKeys].c_str());
      }
    }
    return Good(newest);
  }

 private:
  static constexpr uint64_t kKeys = 300;

  static std::string Key(uint64_t i) { return "key" + std::to_string(i); }
  std::string Value(uint64_t number) const { return Hex(seed(), number, 1500); }

  static rocksdb_options_t* Options() {
    rocksdb_options_t* options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    // So that files are made, merged and removed all the time.
    rocksdb_options_set_write_buffer_size(options, 64u << 10);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, 2);
    return options;
  }
};

}  // namespace

std::unique_ptr<Workload> MakeSqlite(std::string name, std::string folder, uint64_t seed,
                                     Promise promise, bool wal) {
  return std::make_unique<Sqlite>(std::move(name), std::move(folder), seed, promise, wal);
}

std::unique_ptr<Workload> MakeRocksdb(std::string name, std::string folder, uint64_t seed,
                                      Promise promise) {
  return std::make_unique<Rocksdb>(std::move(name), std::move(folder), seed, promise);
}

}  // namespace nvcache::power_test
