// SPDX-License-Identifier: BSD-3-Clause
//
// sqlite-wal, sqlite-delete: one transaction after the other, each a row and a change of an older
//     one. The database is sound and has the state after one of them.
// both-wal0, both-wal1 and so on: the same of two processes that write the same database, each a
//     table of its own; at first by strict turns. One with an odd number runs without NVCache.
// postgres: the same of a server with all its processes, and a row that each transaction changes.
// rocksdb: synced writes to a few hundred keys. Every key has the newest value.
#include <rocksdb/c.h>
#include <sqlite3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

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

// A table (id, v, changed). Each transaction adds a row and changes an older one.
class Table {
 public:
  explicit Table(uint64_t seed, const char* name = "t") : seed_(seed), name_(name) {}

  std::string Transaction(uint64_t row) const {
    return "INSERT INTO " + name_ + " VALUES(" + std::to_string(row) + ",'" + Value(row) +
           "',0);UPDATE " + name_ + " SET changed=" + std::to_string(row) +
           " WHERE id=" + std::to_string(Changed(row)) + ";";
  }

  // The rows that are there, in their order; not good if one of them is not the next, or wrong.
  Verdict Add(uint64_t id, const std::string& value, uint64_t changed) {
    changed_.push_back(changed);
    if (id != count()) return Bad("row %llu is missing, later ones are there", Long(count()));
    return value == Value(id) ? Good(id) : Bad("row %llu is wrong", Long(id));
  }

  // Whether these are all, as after the last of them.
  Verdict Check(uint64_t acknowledged) const {
    if (count() < acknowledged) {
      return Bad("%llu rows, %llu are acknowledged", Long(count()), Long(acknowledged));
    }
    std::vector<uint64_t> expected(count() + 1);
    for (uint64_t row = 1; row <= count(); ++row) expected[Changed(row)] = row;
    for (uint64_t row = 1; row <= count(); ++row) {
      if (changed_[row] != expected[row]) {
        return Bad("row %llu was changed with row %llu, and has %llu", Long(row),
                   Long(expected[row]), Long(changed_[row]));
      }
    }
    return Good(count());
  }

  uint64_t count() const { return changed_.size() - 1; }

 private:
  std::string Value(uint64_t row) const { return Hex(seed_, row, 1500); }
  uint64_t Changed(uint64_t row) const { return 1 + Random(seed_ ^ row << 24).Below(row); }

  const uint64_t seed_;
  const std::string name_;
  std::vector<uint64_t> changed_ = {0};  // with which row, from row 1 on
};

// EXTRA: SQLite does not promise a commit without it after a power failure, where the journal's end
// is that it has no name. It is durable with FULL, if names are in the log.
struct Journal {
  const char *name, *mode, *synchronous;
};
constexpr Journal kJournals[] = {
    {"sqlite-wal", "WAL", "FULL"},         {"sqlite-delete", "DELETE", "EXTRA"},
    {"sqlite-full", "DELETE", "FULL"},     {"sqlite-truncate", "TRUNCATE", "FULL"},
    {"sqlite-persist", "PERSIST", "FULL"}, {"both-wal", "WAL", "FULL"},
    {"both-delete", "DELETE", "EXTRA"},    {"both-truncate", "TRUNCATE", "FULL"},
    {"both-persist", "PERSIST", "FULL"},
};

class Sqlite : public Workload {
 public:
  Sqlite(const Settings& settings, const Journal& journal) : Workload(settings), journal_(journal) {
    if (!settings.name.starts_with("both")) return;
    const bool is_odd = (settings.name.back() - '0') % 2 == 1;
    table_ = is_odd ? "t1" : "t0";
    is_outside_ = is_odd;
  }

  // It takes turns by its locks: where it is at work, no write is durable by itself.
  bool HasProcess() const override { return true; }

  void Run(uint64_t done) override {
    if (is_outside_ && std::getenv("LD_PRELOAD") != nullptr) BeginOutside();
    sqlite3* db = Open();
    if (is_both() && !is_outside_) AwaitTables(db);
    Execute(db, "PRAGMA journal_mode=" + std::string(journal_.mode));
    Execute(db, "PRAGMA synchronous=" +
                    std::string(promise() == Promise::kNothing ? "OFF" : journal_.synchronous));
    Execute(db, "PRAGMA wal_autocheckpoint=50");
    if (!is_both()) Execute(db, Creation(table_));
    if (is_outside_) {
      Execute(db, "BEGIN IMMEDIATE;" + Creation("t0") + Creation("t1") +
                      "CREATE TABLE IF NOT EXISTS last(who);"
                      "INSERT INTO last SELECT '' WHERE NOT EXISTS(SELECT 1 FROM last);COMMIT");
    }
    const Table table(seed(), table_);
    for (uint64_t row = done + 1;; ++row) {
      if (is_both() && row <= done + kStrictTurns) AwaitTurn(db);
      const std::string said =
          is_both() ? "UPDATE last SET who='" + std::string(table_) + "';" : std::string();
      Execute(db, "BEGIN IMMEDIATE;" + table.Transaction(row) + said + "COMMIT");
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
  sqlite3* Open() const {
    sqlite3* db = nullptr;
    if (sqlite3_open(Path("db").c_str(), &db) != SQLITE_OK) Die("sqlite3_open");
    sqlite3_busy_timeout(db, 60'000);
    return db;
  }
  // SQLite waits for another process, but not where both may wait for each other: then it is done
  // again.
  void Execute(sqlite3* db, const std::string& sql) const {
    char* error = nullptr;
    int result;
    while ((result = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error)) == SQLITE_BUSY) {
      sqlite3_free(error);
      if (sqlite3_get_autocommit(db) == 0) Die("busy in a transaction");
      ::usleep(1000);
    }
    if (result != SQLITE_OK) Die(error);
  }

  bool is_both() const { return name().starts_with("both"); }

  static std::string Creation(const char* table) {
    const std::string name = table;
    return "CREATE TABLE IF NOT EXISTS " + name +
           "(id INTEGER PRIMARY KEY, v TEXT, changed INTEGER);"
           "CREATE INDEX IF NOT EXISTS i_" +
           name + " ON " + name + "(v);";
  }

  // What comes back of `last`; nothing, if it is not there yet.
  static std::string Last(sqlite3* db) {
    std::string who;
    const auto take = [](void* text, int, char** columns, char**) {
      *static_cast<std::string*>(text) = std::string("=") + columns[0];
      return 0;
    };
    sqlite3_exec(db, "SELECT who FROM last", take, &who, nullptr);
    return who;
  }
  static void AwaitTables(sqlite3* db) {
    while (Last(db).empty()) ::usleep(2000);
  }
  // The last transaction was the other one's.
  void AwaitTurn(sqlite3* db) const {
    for (;;) {
      const std::string who = Last(db);
      if (!who.empty() && who != "=" + std::string(table_)) return;
      ::usleep(2000);
    }
  }

  // The same, by a program that has nothing of NVCache.
  [[noreturn]] void BeginOutside() const {
    std::vector<std::string> kept;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      if (!text.starts_with("LD_") && !text.starts_with("NVCACHE_")) kept.push_back(text);
    }
    std::vector<char*> variables;
    for (std::string& text : kept) variables.push_back(text.data());
    variables.push_back(nullptr);
    std::string top = folder().substr(0, folder().rfind('/')),
                number = std::to_string(settings_seed());
    std::string own_name = name(), promised = "fsync";
    char agent[] = "agent", work[] = "work";
    char* words[] = {agent,           work,   top.data(), number.data(), promised.data(),
                     own_name.data(), nullptr};
    ::execve("/proc/self/exe", words, variables.data());
    Die("exec");
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
    if (sqlite3_prepare_v2(
            db, ("SELECT id, v, changed FROM " + std::string(table_) + " ORDER BY id").c_str(), -1,
            &rows, nullptr) != SQLITE_OK) {
      return acknowledged == 0 ? Good(0) : Bad("the table is not there: %s", sqlite3_errmsg(db));
    }
    Table table(seed(), table_);
    Verdict verdict = Good(0);
    while (verdict.ok && sqlite3_step(rows) == SQLITE_ROW) {
      verdict = table.Add(static_cast<uint64_t>(sqlite3_column_int64(rows, 0)),
                          reinterpret_cast<const char*>(sqlite3_column_text(rows, 1)),
                          static_cast<uint64_t>(sqlite3_column_int64(rows, 2)));
    }
    sqlite3_finalize(rows);
    return verdict.ok ? table.Check(acknowledged) : verdict;
  }

  // Of two, at first. What the one without NVCache writes is safe from the next turn of the other
  // on (docs/write-through.md: What stays open): here it has written by the time that there is a
  // log.
  static constexpr uint64_t kStrictTurns = 8;

  const Journal& journal_;
  const char* table_ = "t";
  bool is_outside_ = false;
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

// ---------------------------------------------------------------------------------------------

// psql, which is given statements by a socket.
class Session {
 public:
  // Whether it runs.
  bool Begin() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    fd_ = ends[0];
    const pid_t child = StartProgram({"psql", "-XAt", "-v", "ON_ERROR_STOP=1"}, ends[1], ends[1]);
    ::close(ends[1]);
    return child > 0;
  }

  // Whether the server has answered COMMIT, which is the last of the statements. `said`: all
  // answers.
  bool Commit(const std::string& statements, std::string* said) const {
    if (::write(fd_, statements.data(), statements.size()) !=
        static_cast<ssize_t>(statements.size())) {
      return false;
    }
    said->clear();
    while (!said->ends_with("COMMIT\n")) {
      char buffer[512];
      const ssize_t n = ::read(fd_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      said->append(buffer, static_cast<size_t>(n));
    }
    return true;
  }

 private:
  int fd_ = -1;
};

// The host has made the database, with its tables (guest_image.py).
class Postgres : public Workload {
 public:
  using Workload::Workload;
  bool HasProcess() const override { return true; }

  void Prepare(uint64_t) override {
    std::string said;
    if (!Start(&said)) Die(said.c_str());
  }

  void Run(uint64_t done) override {
    Session session;
    if (!session.Begin()) Die("psql");
    for (uint64_t row = done + 1;; ++row) {
      std::string said;
      if (!session.Commit(Upkeep(row) + Transaction(row), &said)) {
        Die(("no COMMIT: " + said + Log()).c_str());
      }
      AcknowledgeAtOnce(row);
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    if (::access(Path("data/PG_VERSION").c_str(), F_OK) != 0) {
      return acknowledged == 0 ? Good(0) : Bad("the database is not there");
    }
    std::string said;
    if (!Start(&said)) return Bad("start: %s", said.c_str());
    Verdict verdict = CheckRows(acknowledged);
    if (!verdict.ok) return verdict;
    if (!HasBalance(verdict.found, &said)) {
      return Bad("the balance after %llu: %s", Long(verdict.found), said.c_str());
    }
    const std::vector<std::string> programs[] = {
        {"pg_amcheck", "--heapallindexed"},
        {"pg_ctl", "stop", "-w", "-s", "-m", "fast", "-D", Path("data")},
        {"pg_checksums", "-D", Path("data")}};
    for (const std::vector<std::string>& words : programs) {
      said.clear();
      if (!RunProgram(words, &said)) return Bad("%s: %s", words[0].c_str(), said.c_str());
    }
    return verdict;
  }

 private:
  static constexpr char kLog[] = "/tmp/postgres.log";

  // Its end.
  static std::string Log() {
    bool exists;
    const std::vector<uint8_t> bytes = ReadFile(kLog, &exists);
    return {bytes.end() - static_cast<long>(std::min<size_t>(bytes.size(), 400)), bytes.end()};
  }

  // In half of all lives its recovery syncs the file system, not each file; in half of them the new
  // files of a table are synced, and not in its log.
  std::string Options() const {
    std::string options;
    if (promise() == Promise::kNothing) options += " -c fsync=off";
    if (seed() % 2 == 0) options += " -c recovery_init_sync_method=syncfs";
    if (seed() / 2 % 2 == 0) options += " -c wal_level=minimal -c max_wal_senders=0";
    return options;
  }

  bool Start(std::string* said) const {
    if (RunProgram({"pg_ctl", "start", "-w", "-t", "120", "-s", "-D", Path("data"), "-l", kLog,
                    "-o", Options()},
                   said)) {
      return true;
    }
    *said += Log();
    return false;
  }

  std::string Transaction(uint64_t row) const {
    const std::string n = std::to_string(row);
    std::string statements = "BEGIN;" + Table(seed()).Transaction(row);
    statements += "UPDATE balance SET total=total+" + n;
    statements += ",last=" + n;
    return statements += ";COMMIT;\n";
  }

  // Now and then all pages go to their files, the log begins its next one, and tables get others.
  std::string Upkeep(uint64_t row) const {
    Random random(seed() ^ row << 40);
    std::string statements;
    if (random.OneIn(20)) statements += "CHECKPOINT;";
    if (random.OneIn(20)) statements += "SELECT pg_switch_wal();";
    if (random.OneIn(40)) statements += "VACUUM FULL t;";
    if (random.OneIn(40)) statements += "REINDEX TABLE t;";
    return statements;
  }

  static bool Ask(const std::string& question, std::string* answer) {
    return RunProgram({"psql", "-XAtq", "-F", " ", "-c", question}, answer);
  }

  Verdict CheckRows(uint64_t acknowledged) const {
    std::string said;
    if (!Ask("SELECT id, v, changed FROM t ORDER BY id", &said)) return Bad("t: %s", said.c_str());
    Table table(seed());
    std::istringstream rows(said);
    uint64_t id, changed;
    for (std::string value; rows >> id >> value >> changed;) {
      Verdict verdict = table.Add(id, value, changed);
      if (!verdict.ok) return verdict;
    }
    if (table.count() > acknowledged + 1) {
      return Bad("%llu rows, %llu are acknowledged, and one was under way", Long(table.count()),
                 Long(acknowledged));
    }
    return table.Check(acknowledged);
  }

  // Whether it is as after this many transactions.
  static bool HasBalance(uint64_t n, std::string* said) {
    const std::string wanted = std::to_string(n * (n + 1) / 2) + " " + std::to_string(n) + "\n";
    said->clear();
    return Ask("SELECT total, last FROM balance", said) && *said == wanted;
  }
};

}  // namespace

std::unique_ptr<Workload> MakePostgres(const Settings& settings) {
  return std::make_unique<Postgres>(settings);
}

std::unique_ptr<Workload> MakeSqlite(const Settings& settings) {
  Settings own = settings;
  if (own.name.starts_with("both")) {
    own.folder = own.folder.substr(0, own.folder.rfind('/')) + "/common";
  }
  for (const Journal& journal : kJournals) {
    if (own.name.starts_with(journal.name)) return std::make_unique<Sqlite>(own, journal);
  }
  return nullptr;
}

std::unique_ptr<Workload> MakeRocksdb(const Settings& settings) {
  return std::make_unique<Rocksdb>(settings);
}

}  // namespace nvcache::power_test
