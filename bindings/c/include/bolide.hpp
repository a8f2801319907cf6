/*
 * Bolide for C++17: owners for the objects of bolide.h, and errors as exceptions. Header only.
 *
 * Each owner converts to the pointer that the functions of bolide.h take, so that the two mix.
 */
#ifndef BOLIDE_HPP
#define BOLIDE_HPP

#include <bolide.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bolide {

/* An error with its code and advice. */
class Error : public std::runtime_error {
 public:
  Error(bolide_code code, const char *message, const char *advice)
      : std::runtime_error(message), code_(code), advice_(advice) {}

  bolide_code code() const noexcept { return code_; }
  const std::string &advice() const noexcept { return advice_; }

 private:
  bolide_code code_;
  std::string advice_;
};

/* Calls a function of bolide.h with its last parameter. Whether there is something: false for BOLIDE_ABSENT. */
template <typename Call>
bool check(Call &&call) {
  bolide_error *raw = nullptr;
  const bolide_code code = call(&raw);
  if (code <= BOLIDE_OK) return code == BOLIDE_OK;
  const std::unique_ptr<bolide_error, void (*)(bolide_error *)> error(raw, bolide_error_free);
  throw Error(code, bolide_error_message(raw), bolide_error_advice(raw));
}

/* An object that FREE frees. */
template <typename T, void (*Free)(T *)>
class Owner {
 public:
  Owner() noexcept = default;
  explicit Owner(T *object) noexcept : object_(object) {}
  Owner(Owner &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owner &operator=(Owner &&other) noexcept {
    if (this != &other) {
      Free(object_);
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  Owner(const Owner &) = delete;
  Owner &operator=(const Owner &) = delete;
  ~Owner() { Free(object_); }

  operator T *() const noexcept { return object_; }
  T *release() noexcept { return std::exchange(object_, nullptr); }

 private:
  T *object_ = nullptr;
};

using Options = Owner<bolide_options, bolide_options_free>;
using CollectionOptions = Owner<bolide_collection_options, bolide_collection_options_free>;
using Snapshot = Owner<bolide_snapshot, bolide_snapshot_free>;
using Query = Owner<bolide_query, bolide_query_free>;
using Savepoint = Owner<bolide_savepoint, bolide_savepoint_free>;
using IndexBuild = Owner<bolide_index_build, bolide_index_build_free>;

inline std::string_view view(bolide_slice slice) noexcept {
  return slice.data == nullptr ? std::string_view() : std::string_view(slice.data, slice.size);
}

/* Bytes that bolide.h returned. */
class Bytes {
 public:
  Bytes() noexcept = default;
  Bytes(Bytes &&other) noexcept : bytes_(std::exchange(other.bytes_, bolide_bytes{})) {}
  Bytes &operator=(Bytes &&other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  ~Bytes() { bolide_bytes_free(&bytes_); }

  /* The place for a result; frees what was there. */
  bolide_bytes *out() noexcept {
    bolide_bytes_free(&bytes_);
    return &bytes_;
  }
  std::string_view view() const noexcept {
    return bytes_.data == nullptr ? std::string_view() : std::string_view(bytes_.data, bytes_.size);
  }

 private:
  bolide_bytes bytes_{};
};

/* The answers to a query. A row is valid until the next call. */
class Answers : public Owner<bolide_answers, bolide_answers_free> {
 public:
  using Owner::Owner;

  bool next(bolide_row &row) {
    return check([&](bolide_error **error) { return bolide_answers_next(*this, &row, error); });
  }
  std::string explain() {
    Bytes json;
    check([&](bolide_error **error) { return bolide_answers_explain(*this, json.out(), error); });
    return std::string(json.view());
  }
};

/* Records in key order. A row is valid until the next call. */
class Cursor : public Owner<bolide_cursor, bolide_cursor_free> {
 public:
  using Owner::Owner;

  bool first(bolide_row &row) {
    return check([&](bolide_error **error) { return bolide_cursor_first(*this, &row, error); });
  }
  bool next(bolide_row &row) {
    return check([&](bolide_error **error) { return bolide_cursor_next(*this, &row, error); });
  }
  bool seek(std::string_view key, bolide_row &row) {
    return check([&](bolide_error **error) { return bolide_cursor_seek(*this, key.data(), key.size(), &row, error); });
  }
};

class Collection : public Owner<bolide_collection, bolide_collection_free> {
 public:
  using Owner::Owner;

  void put(std::string_view key, std::string_view record) {
    check([&](bolide_error **error) {
      return bolide_put(*this, key.data(), key.size(), record.data(), record.size(), error);
    });
  }
  std::optional<std::string> get(std::string_view key, const bolide_snapshot *at = nullptr) const {
    Bytes record;
    const bool found = check([&](bolide_error **error) {
      return bolide_get(*this, key.data(), key.size(), at, record.out(), nullptr, error);
    });
    return found ? std::optional<std::string>(record.view()) : std::nullopt;
  }
  void remove(std::string_view key) {
    check([&](bolide_error **error) { return bolide_delete(*this, key.data(), key.size(), error); });
  }
  Answers find(const bolide_query *query, const bolide_snapshot *at = nullptr) const {
    bolide_answers *answers = nullptr;
    check([&](bolide_error **error) { return bolide_find(*this, query, at, &answers, error); });
    return Answers(answers);
  }
  std::uint64_t count(const bolide_query *query, const bolide_snapshot *at = nullptr) const {
    std::uint64_t count = 0;
    check([&](bolide_error **error) { return bolide_count(*this, query, at, &count, error); });
    return count;
  }
  Cursor cursor(const bolide_range *range = nullptr, const bolide_snapshot *at = nullptr) const {
    bolide_cursor *cursor = nullptr;
    check([&](bolide_error **error) { return bolide_cursor_open(*this, range, at, &cursor, error); });
    return Cursor(cursor);
  }
  void create_index(std::string_view spec) {
    check([&](bolide_error **error) { return bolide_index_create(*this, spec.data(), spec.size(), error); });
  }
};

/* Writes that take effect together. */
class Batch : public Owner<bolide_batch, bolide_batch_free> {
 public:
  using Owner::Owner;

  void put(const Collection &collection, std::string_view key, std::string_view record) {
    check([&](bolide_error **error) {
      return bolide_batch_put(*this, collection, key.data(), key.size(), record.data(), record.size(), error);
    });
  }
  void remove(const Collection &collection, std::string_view key) {
    check([&](bolide_error **error) {
      return bolide_batch_delete(*this, collection, key.data(), key.size(), error);
    });
  }
  std::uint64_t write(bolide_sync sync = BOLIDE_SYNC_DEFAULT) {
    std::uint64_t sequence = 0;
    check([&](bolide_error **error) { return bolide_batch_write(*this, sync, &sequence, error); });
    return sequence;
  }
};

/* Without a commit it has no effect. */
class Transaction : public Owner<bolide_transaction, bolide_transaction_free> {
 public:
  using Owner::Owner;

  std::optional<std::string> get(const Collection &collection, std::string_view key, bool for_update = false) const {
    Bytes record;
    const bool found = check([&](bolide_error **error) {
      return bolide_transaction_get(*this, collection, key.data(), key.size(), for_update, record.out(), error);
    });
    return found ? std::optional<std::string>(record.view()) : std::nullopt;
  }
  void put(const Collection &collection, std::string_view key, std::string_view record) {
    check([&](bolide_error **error) {
      return bolide_transaction_put(*this, collection, key.data(), key.size(), record.data(), record.size(), error);
    });
  }
  void commit() {
    check([&](bolide_error **error) { return bolide_commit(*this, nullptr, error); });
  }
};

/* A database. Its destructor closes it with its last object; close() also reports errors. */
class Db : public Owner<bolide_db, bolide_db_free> {
 public:
  using Owner::Owner;

  static Db open(std::string_view path, const bolide_options *options = nullptr) {
    bolide_db *db = nullptr;
    check([&](bolide_error **error) { return bolide_open(path.data(), path.size(), options, &db, error); });
    return Db(db);
  }
  Collection collection(std::string_view name) const {
    bolide_collection *collection = nullptr;
    check([&](bolide_error **error) {
      return bolide_collection_open(*this, name.data(), name.size(), &collection, error);
    });
    return Collection(collection);
  }
  Collection create_collection(std::string_view name, const bolide_collection_options *options = nullptr) {
    bolide_collection *collection = nullptr;
    check([&](bolide_error **error) {
      return bolide_collection_create(*this, name.data(), name.size(), options, &collection, error);
    });
    return Collection(collection);
  }
  Snapshot snapshot() const {
    bolide_snapshot *snapshot = nullptr;
    check([&](bolide_error **error) { return bolide_snapshot_new(*this, &snapshot, error); });
    return Snapshot(snapshot);
  }
  Batch batch() const {
    bolide_batch *batch = nullptr;
    check([&](bolide_error **error) { return bolide_batch_new(*this, &batch, error); });
    return Batch(batch);
  }
  Transaction begin(bolide_isolation isolation = BOLIDE_SERIALIZABLE) const {
    bolide_transaction *transaction = nullptr;
    check([&](bolide_error **error) {
      return bolide_begin(*this, isolation, BOLIDE_SYNC_DEFAULT, 0, &transaction, error);
    });
    return Transaction(transaction);
  }
  /* Throws with BOLIDE_IN_USE, and stays open, if other objects of it exist. */
  void close() {
    bolide_db *object = release();
    try {
      check([&](bolide_error **error) { return bolide_close(object, error); });
    } catch (const Error &error) {
      if (error.code() == BOLIDE_IN_USE) *this = Db(object);
      throw;
    }
  }
};

/* A query for the records that satisfy a filter; see bolide_query_new. */
inline Query query(std::string_view filter) {
  bolide_query *query = nullptr;
  check([&](bolide_error **error) { return bolide_query_new(filter.data(), filter.size(), &query, error); });
  return Query(query);
}

}  // namespace bolide

#endif
