// SPDX-License-Identifier: BSD-3-Clause
//
// LevelDB's db_bench and a mix of transactions, over SQLite. Prints JSON: for each operation how
// many there were, the mean of their times, percentiles, and how many in a second.
//
//   fillseq, fillrandom, fillsync, fillbatch   into an empty table: keys in order, at random, at
//                    random with synchronous=FULL whatever --synchronous says, in order with
//                    kBatch rows in a transaction. All others: one row, one transaction.
//   overwrite        random keys of those that are there
//   readrandom, readseq   by random keys of those that are there; in the order of the keys
//   mix              a table with an index: see Mix. Its operations are transactions.
//
// At the end, outside of all times, another connection checks the file: PRAGMA integrity_check and
// the number of rows. The same seed makes the same database.
#include <sqlite3.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace nvcache::bench {
namespace {

constexpr size_t kKeySize = 16;
constexpr size_t kValueSize = 100;
constexpr int64_t kBatch = 1000;
constexpr int64_t kLeastRows = 500;  // that the mix can do with

struct Options {
  std::string database;
  std::vector<std::string> operations{"fillseq",   "fillrandom", "fillsync",
                                      "overwrite", "readrandom", "readseq"};
  std::string journal = "WAL";
  std::string synchronous = "FULL";
  int64_t num = 10000;
  int64_t reads = -1;  // num
  int64_t cache = 2000;
  uint64_t seed = 301;
};

class Statement {
 public:
  Statement(sqlite3* database, const std::string& text) : database_(database) {
    Check(sqlite3_prepare_v2(database, text.c_str(), -1, &statement_, nullptr), SQLITE_OK);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The bytes stay the caller's until the statement has been run.
  void Bind(int index, std::string_view bytes) {
    Check(sqlite3_bind_blob(statement_, index, bytes.data(), static_cast<int>(bytes.size()),
                            SQLITE_STATIC),
          SQLITE_OK);
  }
  void Bind(int index, int64_t number) {
    Check(sqlite3_bind_int64(statement_, index, number), SQLITE_OK);
  }
  // True: there is a row. After the last one it can be run again.
  bool Step() {
    const int result = sqlite3_step(statement_);
    if (result == SQLITE_ROW) return true;
    Check(result, SQLITE_DONE);
    Reset();
    return false;
  }
  void Reset() { Check(sqlite3_reset(statement_), SQLITE_OK); }
  int64_t Number(int column) { return sqlite3_column_int64(statement_, column); }
  std::string_view Bytes(int column) {
    const void* bytes = sqlite3_column_blob(statement_, column);
    return {static_cast<const char*>(bytes),
            static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  void Check(int result, int want) {
    if (result != want) throw std::runtime_error(sqlite3_errmsg(database_));
  }

  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
};

class Database {
 public:
  explicit Database(const std::string& path) {
    if (sqlite3_open(path.c_str(), &handle_) != SQLITE_OK) {
      const std::string error = sqlite3_errmsg(handle_);
      sqlite3_close(handle_);
      throw std::runtime_error(path + ": " + error);
    }
  }
  ~Database() { sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* handle() const { return handle_; }
  // The first column of the first row, as text; "" without a row.
  std::string Run(const std::string& text) {
    Statement statement(handle_, text);
    std::string answer;
    if (statement.Step()) {
      answer = statement.Bytes(0);
      while (statement.Step()) {
      }
    }
    return answer;
  }
  int64_t Count(const std::string& table) {
    return std::stoll(Run("SELECT count(*) FROM " + table));
  }

 private:
  sqlite3* handle_ = nullptr;
};

// The times of one kind of operation.
class Times {
 public:
  template <typename Operation>
  void Add(Operation operation) {
    const auto begin = std::chrono::steady_clock::now();
    operation();
    ns_.push_back((std::chrono::steady_clock::now() - begin).count());
  }

  // `rows`: that each operation wrote or read, on average.
  nlohmann::json Report(const std::string& name) {
    std::sort(ns_.begin(), ns_.end());
    double total = 0;
    for (const int64_t ns : ns_) total += static_cast<double>(ns);
    const auto count = static_cast<double>(ns_.size());
    nlohmann::json report = {{"name", name},
                             {"count", ns_.size()},
                             {"micros_per_op", total / count / 1e3},
                             {"ops_per_second", count / total * 1e9},
                             {"seconds", total / 1e9}};
    for (const auto& [title, share] :
         {std::pair{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}}) {
      // A percentile needs operations beyond it.
      if (count * (1 - share) >= 1) {
        report[std::string(title) + "_micros"] =
            static_cast<double>(ns_[static_cast<size_t>(count * share)]) / 1e3;
      }
    }
    return report;
  }

 private:
  std::vector<int64_t> ns_;
};

std::string Key(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(kKeySize - digits.size(), '0') + digits;
}

class Session {
 public:
  explicit Session(const Options& options)
      : options_(options), random_(options.seed), database_(options.database) {
    if (options_.reads < 0) options_.reads = options_.num;
    // A word that it does not know, SQLite ignores.
    const std::string journal = database_.Run("PRAGMA journal_mode=" + options_.journal);
    if (strcasecmp(journal.c_str(), options_.journal.c_str()) != 0) {
      throw std::runtime_error("journal mode " + options_.journal + ": it is " + journal);
    }
    database_.Run("PRAGMA cache_size=-" + std::to_string(options_.cache));
    Synchronous(options_.synchronous);
  }

  nlohmann::json Run() {
    const std::map<std::string, std::function<void()>> operations = {
        {"fillseq", [this] { Fill("fillseq", true, 1); }},
        {"fillrandom", [this] { Fill("fillrandom", false, 1); }},
        {"fillsync",
         [this] {
           Synchronous("FULL");
           Fill("fillsync", false, 1);
           Synchronous(options_.synchronous);
         }},
        {"fillbatch", [this] { Fill("fillbatch", true, kBatch); }},
        {"overwrite", [this] { Write("overwrite", false, 1); }},
        {"readrandom", [this] { ReadRandom(); }},
        {"readseq", [this] { ReadSequential(); }},
        {"mix", [this] { Mix(); }}};
    for (const std::string& name : options_.operations) {
      const auto operation = operations.find(name);
      if (operation == operations.end()) throw std::runtime_error("no operation " + name);
      operation->second();
    }
    return std::move(reports_);
  }

 private:
  void Synchronous(const std::string& value) { database_.Run("PRAGMA synchronous=" + value); }

  int64_t Random(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  // Half of it is random, so that no two are alike; it begins with its key.
  std::string Value(const std::string& key) {
    std::string value = key;
    value.resize(kValueSize, '.');
    for (size_t at = kValueSize / 2; at + sizeof(uint64_t) <= kValueSize; at += sizeof(uint64_t)) {
      const uint64_t bytes = random_();
      std::memcpy(value.data() + at, &bytes, sizeof bytes);
    }
    return value;
  }

  void Expect(const std::string& what, int64_t is, int64_t want) {
    if (is == want) return;
    throw std::runtime_error(what + ": " + std::to_string(is) + ", not " + std::to_string(want));
  }

  void Fill(const std::string& name, bool in_order, int64_t batch) {
    database_.Run("DROP TABLE IF EXISTS test");
    // LevelDB's db_bench has it so.
    database_.Run("CREATE TABLE test (key blob, value blob, PRIMARY KEY (key))");
    Write(name, in_order, batch);
  }

  void Write(const std::string& name, bool in_order, int64_t batch) {
    Statement insert(database_.handle(), "REPLACE INTO test (key, value) VALUES (?, ?)");
    Statement begin(database_.handle(), "BEGIN");
    Statement commit(database_.handle(), "COMMIT");
    std::vector<bool> there(static_cast<size_t>(options_.num));
    const int64_t before = database_.Count("test");
    Times times;
    std::vector<std::pair<std::string, std::string>> rows;
    for (int64_t at = 0; at < options_.num; at += batch) {
      rows.clear();
      for (int64_t i = at; i < std::min(at + batch, options_.num); ++i) {
        const int64_t number = in_order ? i : Random(options_.num);
        there[static_cast<size_t>(number)] = true;
        const std::string key = Key(number);
        rows.emplace_back(key, Value(key));
      }
      times.Add([&] {
        if (batch > 1) begin.Step();
        for (const auto& [key, value] : rows) {
          insert.Bind(1, key);
          insert.Bind(2, value);
          insert.Step();
        }
        if (batch > 1) commit.Step();
      });
    }
    // All keys are below num: those that were there before may be others.
    const int64_t least = std::count(there.begin(), there.end(), true);
    const int64_t is = database_.Count("test");
    if (before == 0) Expect("rows", is, least);
    if (is < std::max(before, least)) throw std::runtime_error("rows are missing");
    Reported(name, times);
  }

  void ReadRandom() {
    std::vector<std::string> keys;
    for (Statement all(database_.handle(), "SELECT key FROM test"); all.Step();) {
      keys.emplace_back(all.Bytes(0));
    }
    if (keys.empty()) throw std::runtime_error("readrandom: fill the table first");
    Statement read(database_.handle(), "SELECT value FROM test WHERE key = ?");
    Times times;
    int64_t found = 0;
    for (int64_t i = 0; i < options_.reads; ++i) {
      const std::string& key = keys[static_cast<size_t>(Random(std::ssize(keys)))];
      times.Add([&] {
        read.Bind(1, key);
        while (read.Step()) found += read.Bytes(0).starts_with(key) ? 1 : 0;
      });
    }
    Expect("values read", found, options_.reads);
    Reported("readrandom", times);
  }

  void ReadSequential() {
    const int64_t rows = std::min(options_.reads, database_.Count("test"));
    Statement read(database_.handle(), "SELECT key, value FROM test ORDER BY key");
    Times times;
    int64_t sound = 0;
    std::string before;
    for (int64_t i = 0; i < rows; ++i) {
      times.Add([&] {
        if (!read.Step()) return;
        const std::string_view key = read.Bytes(0);
        sound += key > before && read.Bytes(1).starts_with(key) ? 1 : 0;
        before = key;
      });
    }
    Expect("rows read in order", sound, rows);
    Reported("readseq", times);
  }

  // Does what applications do: many rows in transactions of different sizes; updates by an index,
  // deletes of ranges, selects with an order.
  void Mix() {
    database_.Run("CREATE TABLE mix (id INTEGER PRIMARY KEY, number INTEGER, text BLOB)");
    database_.Run("CREATE INDEX mix_number ON mix (number)");
    const int64_t each = options_.num / 3;
    for (const int64_t batch : {int64_t{1}, int64_t{10}, int64_t{100}}) {
      Insert(each / (batch == 1 ? 10 : 1), batch);
    }
    const int64_t rows = database_.Count("mix");
    const int64_t transactions = std::max<int64_t>(rows / 100, 2);

    Statement update(database_.handle(), "UPDATE mix SET text = ? WHERE number BETWEEN ? AND ?");
    Statement begin(database_.handle(), "BEGIN");
    Statement commit(database_.handle(), "COMMIT");
    Times updates;
    for (int64_t i = 0; i < transactions; ++i) {
      const int64_t number = Random(rows);
      const std::string text = Value(Key(number));
      updates.Add([&] {
        begin.Step();
        update.Bind(1, text);
        update.Bind(2, number);
        update.Bind(3, number + 10);
        update.Step();
        commit.Step();
      });
    }
    Reported("mix-update", updates);

    Statement select(database_.handle(),
                     "SELECT id, number FROM mix WHERE id BETWEEN ? AND ? ORDER BY number, id");
    Times selects;
    int64_t selected = 0;
    for (int64_t i = 0; i < transactions; ++i) {
      const int64_t from = 1 + Random(rows - 100);
      int64_t last = -1;
      selects.Add([&] {
        select.Bind(1, from);
        select.Bind(2, from + 99);
        while (select.Step()) {
          selected += select.Number(1) >= last ? 1 : 0;
          last = select.Number(1);
        }
      });
    }
    Expect("rows selected in order", selected, transactions * 100);
    Reported("mix-select", selects);

    Statement remove(database_.handle(), "DELETE FROM mix WHERE id BETWEEN ? AND ?");
    Times deletes;
    const int64_t range = rows / 2 / transactions;
    for (int64_t i = 0; i < transactions; ++i) {
      deletes.Add([&] {
        remove.Bind(1, 1 + i * 2 * range);
        remove.Bind(2, i * 2 * range + range);
        remove.Step();
      });
    }
    Expect("rows left", database_.Count("mix"), rows - transactions * range);
    Reported("mix-delete", deletes);
  }

  void Insert(int64_t rows, int64_t batch) {
    Statement insert(database_.handle(), "INSERT INTO mix (number, text) VALUES (?, ?)");
    Statement begin(database_.handle(), "BEGIN");
    Statement commit(database_.handle(), "COMMIT");
    Times times;
    const int64_t before = database_.Count("mix");
    const int64_t transactions = rows / batch;
    for (int64_t i = 0; i < transactions; ++i) {
      const std::string text = Value(Key(i));
      times.Add([&] {
        begin.Step();
        for (int64_t j = 0; j < batch; ++j) {
          insert.Bind(1, Random(options_.num));
          insert.Bind(2, text);
          insert.Step();
        }
        commit.Step();
      });
    }
    Expect("rows inserted", database_.Count("mix") - before, transactions * batch);
    Reported("mix-insert-" + std::to_string(batch), times);
  }

  void Reported(const std::string& name, Times& times) { reports_.push_back(times.Report(name)); }

  Options options_;
  std::mt19937_64 random_;
  Database database_;
  nlohmann::json reports_ = nlohmann::json::array();
};

// It looks by a connection of its own.
nlohmann::json Check(const std::string& path) {
  Database database(path);
  const std::string integrity = database.Run("PRAGMA integrity_check");
  if (integrity != "ok") throw std::runtime_error(path + ": integrity_check: " + integrity);
  nlohmann::json rows;
  for (const std::string table : {"test", "mix"}) {
    if (database.Run("SELECT 1 FROM sqlite_master WHERE name = '" + table + "'") == "1") {
      rows[table] = database.Count(table);
    }
  }
  return rows;
}

int Main(int argc, char** argv) {
  CLI::App app("LevelDB's db_bench and a mix of transactions, over SQLite.");
  Options options;
  app.add_option("--database", options.database, "The file; must not be there")->required();
  app.add_option("--operations", options.operations, "In this order")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--journal", options.journal, "WAL, TRUNCATE, PERSIST, DELETE, MEMORY or OFF")
      ->capture_default_str();
  app.add_option("--synchronous", options.synchronous, "OFF, NORMAL, FULL or EXTRA")
      ->capture_default_str();
  app.add_option("--num", options.num, "Rows that an operation writes")
      ->check(CLI::Range(kLeastRows, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--reads", options.reads, "Rows that an operation reads; --num without it");
  app.add_option("--cache", options.cache, "SQLite's own page cache, in KiB")
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  try {
    app.parse(argc, argv);
    nlohmann::json report;
    report["sqlite"] = sqlite3_libversion();
    report["operations"] = Session(options).Run();
    report["rows"] = Check(options.database);
    std::printf("%s\n", report.dump(2).c_str());
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nvcache_sqlite: %s\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace nvcache::bench

int main(int argc, char** argv) { return nvcache::bench::Main(argc, argv); }
