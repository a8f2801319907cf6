// The header for C++17: owners and exceptions.
#undef NDEBUG
#include <bolide.hpp>

#include <cassert>
#include <iostream>
#include <vector>

static bolide_code code_of(void (*work)(bolide::Db &), bolide::Db &db) {
  try {
    work(db);
  } catch (const bolide::Error &error) {
    assert(std::string(error.what()).size() > 8 && !error.advice().empty());
    return error.code();
  }
  return BOLIDE_OK;
}

int main() {
  bolide::Db db = bolide::Db::open(":memory:");
  bolide::Collection posts = db.create_collection("posts");
  posts.put("p1", R"({"topic":"rust","score":12})");
  posts.put("p2", R"({"topic":"c","score":90})");
  posts.create_index("topic");
  const bolide::Snapshot before = db.snapshot();

  bolide::Batch batch = db.batch();
  batch.put(posts, "p3", R"({"topic":"rust","score":41})");
  batch.remove(posts, "p2");
  assert(batch.write() > 0);
  assert(!posts.get("p2") && posts.get("p2", before));

  const bolide::Query query = bolide::query("topic = \"rust\"");
  std::vector<std::string> keys;
  {
    bolide::Answers answers = posts.find(query);
    bolide_row row;
    while (answers.next(row)) keys.emplace_back(bolide::view(row.key));
    assert(answers.explain().find("topic") != std::string::npos);
  }
  assert((keys == std::vector<std::string>{"p3", "p1"}));
  assert(posts.count(query) == 2 && posts.count(query, before) == 1);

  bolide::Transaction lost = db.begin();
  assert(lost.get(posts, "p1"));
  lost.put(posts, "p4", "{}");
  posts.put("p1", R"({"topic":"go"})");
  try {
    lost.commit();
    assert(false);
  } catch (const bolide::Error &error) {
    assert(error.code() == BOLIDE_CONFLICT);
  }
  assert(!posts.get("p4"));

  bolide_row row;
  int count = 0;
  bolide::Cursor cursor = posts.cursor();
  for (bool found = cursor.first(row); found; found = cursor.next(row)) count++;
  assert(count == 2 && cursor.seek("p2", row) && bolide::view(row.key) == "p3");

  assert(code_of([](bolide::Db &of) { of.collection("nothing"); }, db) == BOLIDE_NOT_FOUND);
  assert(code_of([](bolide::Db &of) { of.close(); }, db) == BOLIDE_IN_USE);
  // It stays open, and is closed with its last object.
  assert(posts.get("p3"));
  bolide::Db moved = std::move(db);
  assert(moved && !db);
  return 0;
}
