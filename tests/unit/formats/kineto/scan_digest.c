/* Prints rows and a digest of all columns that a scanner library reads from an array of events on stdin.

     scan_digest LIBRARY COLUMNS CODES TEXTS

   For platforms that have no Python here: the digest of each is compared with that of the running one. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 128, BATCH_ENDED = 4, LONGEST = 1 << 26 };

typedef struct { uint8_t *bytes; size_t used, capacity; } Bytes;
typedef struct { int64_t batch_rows, batch_bytes, words_most, words_bytes; } Limits;
typedef struct { int64_t count; const int32_t *offsets; const uint8_t *bytes; } View;

static uint64_t digest = 14695981039346656037u;
static int columns, codes, texts;
static void (*batch_free)(void *);
static void *(*take)(void *);

static void add(const void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) digest = (digest ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
}

/* A batch begins with: rows, values of each column, valid of each column, texts, flags. */
static int64_t add_batch(void *scanner) {
  void **batch = take(scanner);
  if (!batch) return 0;
  int64_t rows = *(int64_t *)batch;
  void **values = batch + 1, **valid = values + columns;
  Bytes *text = (Bytes *)(valid + columns);
  uint8_t *flags = *(void **)(text + texts);
  int numbers = columns - texts;
  for (int c = 0; c < numbers; c++) {
    if (values[c]) add(values[c], (size_t)rows * (c < codes ? 4 : 8));
    if (valid[c]) add(valid[c], (size_t)rows);
  }
  for (int t = 0; t < texts; t++) add(text[t].bytes, text[t].used);
  add(flags, (size_t)rows);
  batch_free(batch);
  return rows;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  columns = atoi(argv[2]), codes = atoi(argv[3]), texts = atoi(argv[4]);
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  void *(*new)(uint64_t, uint64_t, const Limits *, int64_t) = dlsym(library, "tw_new");
  int (*feed)(void *, const uint8_t *, int64_t, int64_t) = dlsym(library, "tw_feed");
  void (*words)(const void *, int, View *) = dlsym(library, "tw_words");
  take = dlsym(library, "tw_take"), batch_free = dlsym(library, "tw_batch_free");
  Limits limits = {5000, 64 << 20, 1 << 20, 128 << 20};
  void *scanner = new (1, 2, &limits, -1);
  uint8_t *piece = calloc(1, (1 << 20) + 64);
  int64_t rows = 0, length;
  int state = 0;
  while ((length = (int64_t)fread(piece, 1, 1 << 20, stdin)) > 0)
    for (state = feed(scanner, piece, length, LONGEST); state == BATCH_ENDED; state = feed(scanner, 0, 0, LONGEST))
      rows += add_batch(scanner);
  rows += add_batch(scanner);
  for (int c = 0; c < codes; c++) {
    View view;
    words(scanner, c, &view);
    if (!view.count) continue;
    add(view.offsets, 4 * ((size_t)view.count + 1));
    add(view.bytes, (size_t)view.offsets[view.count]);
  }
  printf("state %d, rows %lld, digest %016llx\n", state, (long long)rows, (unsigned long long)digest);
  return 0;
}
