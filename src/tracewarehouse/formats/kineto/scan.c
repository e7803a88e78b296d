/* Text of a Chrome/Kineto event array to columns. `python build.py` beside this file builds it in a checkout.

   Text comes in pieces of any size. Each element of the array becomes a row of a batch; columns are those of
   batch.py, in its order. Text that is not strict JSON in UTF-8 is refused at the first wrong element. What is
   strict but unusual is flagged in its row and kept as text; the row-by-row path reads it then.

   - Little-endian, 64 bits. SSE2 where there is, else plain loops. No Python.h: the interface is at the end.
     Tests also build it with PLAIN_LOOPS, and with fewer PROBES.
   - Text is copied to a buffer that ends in PADDING zero bytes. So tokens may be read without looking for the
     end of the text: a zero byte ends every loop, and only what seems wrong asks whether the text ended there.
   - Nothing recurses. Memory per element is a small multiple of its length.
   - Nothing is allocated per event. Every allocation goes through `resize`, which can be made to fail; an
     error leaves the scanner at the beginning of the element that was being read. */

#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__) && !defined(PLAIN_LOOPS)
#define SIMD
#include <emmintrin.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the scanner reads eight bytes at a time and needs a little-endian machine"
#endif
#ifndef __SIZEOF_INT128__
#error "the scanner needs a 64-bit compiler with 128-bit integers"
#endif
#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#ifndef PROBES
#define PROBES 128
#endif
#define ABI 1

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
typedef unsigned __int128 u128;

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { PADDING = 64, BLOCKS = 4, LARGE = 2 << 20 };

/* ---- Columns ------------------------------------------------------------------------------------------- */

/* The order of batch.py; the loader compares the names. */
#define CODE_COLUMNS(X) \
  X(ph) X(cat) X(name) X(pid) X(tid) X(extra) X(shapes) X(dtypes) \
  X(collective) X(process_group) X(group_ranks) X(collective_dtype) X(sync_kind)
#define INT_COLUMNS(X) \
  X(ts) X(dur) X(correlation) X(external_id) X(stream) X(stream_id) X(device) X(device_id) X(bytes) \
  X(sequence_number) X(forward_thread) X(python_id) X(python_parent_id) X(module_id) \
  X(grid_x) X(grid_y) X(grid_z) X(block_x) X(block_y) X(block_z) X(registers_per_thread) \
  X(shared_memory_bytes) X(graph_id) X(graph_node_id) X(group_size) X(in_elements) X(out_elements) \
  X(collective_sequence) X(device_type) X(address) X(total_allocated_bytes) X(total_reserved_bytes) \
  X(event_index) X(wait_on_stream) X(wait_on_event) X(wait_on_correlation)
#define DOUBLE_COLUMNS(X) X(occupancy_percent) X(blocks_per_sm) X(warps_per_sm) X(bandwidth)
#define TEXT_COLUMNS(X) X(args) X(flow_id) X(ts_text) X(dur_text) X(text)

#define NUMBERED(name) C_##name,
#define NAMED(name) #name " "
enum { CODE_COLUMNS(NUMBERED) CODES };
enum { BEFORE_INTS = CODES - 1, INT_COLUMNS(NUMBERED) FIRST_DOUBLE };
enum { BEFORE_DOUBLES = FIRST_DOUBLE - 1, DOUBLE_COLUMNS(NUMBERED) FIRST_TEXT };
enum { BEFORE_TEXTS = FIRST_TEXT - 1, TEXT_COLUMNS(NUMBERED) COLUMNS };
enum { TEXTS = COLUMNS - FIRST_TEXT };
static const char column_names[] =
  CODE_COLUMNS(NAMED) INT_COLUMNS(NAMED) DOUBLE_COLUMNS(NAMED) TEXT_COLUMNS(NAMED);

/* Flags of a row, as in batch.py. */
enum { ODD = 1, SLOW = 2, COLLECTIVE = 4, SUBNS = 8 };

typedef struct {
  u8 *bytes;
  size_t used, capacity;
} Bytes;

/* Zeros that columns are cut from; pages that nobody writes to are not memory. */
typedef struct {
  u8 *bytes;
  size_t used, size;
  int mapped;
} Block;

/* One batch. Columns are allocated by the first row that has a value, so those that nobody fills cost nothing.
   Codes: position in the dictionary + 1 while the batch is filled, minus that 1 when it is taken; no `valid`.
   Texts: `values` are offsets, `valid` is a bitmap. Numbers: `valid` has a byte per row. */
typedef struct {
  i64 rows;
  void *values[COLUMNS];
  u8 *valid[COLUMNS];
  Bytes texts[TEXTS];
  u8 *flags;
  u64 restarted;   /* a bit per code column: its dictionary started empty with this batch */
  i64 strings_from; /* first of the new strings of this batch, -1: there were too many to keep */
  Block blocks[BLOCKS];
} Batch;

/* ---- The scanner --------------------------------------------------------------------------------------- */

/* How reading an element ended; MORE to NO_MEMORY are also what `tw_feed` answers. */
enum { MORE, CLOSED, REFUSED, TOO_LONG, BATCH_ENDED, NO_MEMORY, DICTIONARY_FULL, NONE };

typedef struct {
  u32 hash, word; /* word: position + 1; 0 where the slot is free */
} Slot;

/* Distinct strings. A string that would need more than PROBES looks at the table fills it: with a hash that is
   seeded per process this does not happen by chance, and made-up strings cannot make it slow. */
typedef struct {
  Slot *slots;
  u32 mask, count;
  u32 last; /* the word that was found last: many rows repeat that of the row before */
  i32 *offsets;
  size_t offsets_capacity; /* in bytes */
  Bytes bytes;
} Words;

typedef struct {
  i64 batch_rows, batch_bytes, words_most, words_bytes;
} Limits;

enum { BEFORE_FIRST, BEFORE_ELEMENT, AFTER_ELEMENT };

typedef struct {
  Limits limits;
  u64 seed[2];
  i64 allocations_left; /* -1: as many as memory allows; a test plants a failure with it */

  Bytes pending;  /* text that was fed and not read, from `at` on */
  size_t at, tried;
  i64 dropped;    /* bytes of text before `pending` */
  const u8 *end;  /* of the text in `pending` */
  int place;

  Batch *batch;
  i64 row, rows;  /* in the batch; in all batches before it */
  int error;      /* of the element at hand */
  int escaped, fraction; /* whether a string with an escape, a number that is not an integer was read */
  const u8 *copied;      /* arguments up to here are in the batch */
  size_t texts_before[TEXTS];

  Words words[CODES], strings;
  int strings_full;
  i64 strings_taken;
  Words *full;     /* restarts with the next batch */
  u64 restarted;
  Bytes scratch;
  u64 *kinds;      /* open brackets beyond the 64th, a bit each */
  size_t kinds_capacity;
  u8 keys[256];    /* hash of an argument's key to its number + 1 */
} Scanner;

/* ---- Memory -------------------------------------------------------------------------------------------- */

/* Whether an allocation may succeed. */
static int allowed(Scanner *s) {
  if (s->allocations_left != 0) {
    s->allocations_left -= s->allocations_left > 0;
    return 1;
  }
  s->error = NO_MEMORY;
  return 0;
}

static void *resize(Scanner *s, void *old, size_t size) {
  void *found = allowed(s) ? realloc(old, size) : 0;
  if (!found) s->error = NO_MEMORY;
  return found;
}

static void *zeros(Scanner *s, size_t size) {
  void *found = allowed(s) ? calloc(1, size) : 0;
  if (!found) s->error = NO_MEMORY;
  return found;
}

static int open_block(Scanner *s, Block *b, size_t size) {
  *b = (Block){.size = size};
#ifdef __linux__
  if (size >= LARGE && allowed(s)) {
    u8 *found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->bytes = found == MAP_FAILED ? 0 : found;
    b->mapped = 1;
    if (!b->bytes) s->error = NO_MEMORY;
    return b->bytes != 0;
  }
#endif
  return (b->bytes = zeros(s, size)) != 0;
}

static void close_block(Block *b) {
#ifdef __linux__
  if (b->mapped && b->bytes) munmap(b->bytes, b->size);
#endif
  if (!b->mapped) free(b->bytes);
  *b = (Block){0};
}

/* Room for `more` bytes and the padding. */
static int reserve(Scanner *s, Bytes *b, size_t more) {
  size_t need = b->used + more + PADDING, capacity = b->capacity ? b->capacity : 4096;
  if (need <= b->capacity) return 1;
  while (capacity < need) capacity *= 2;
  u8 *bytes = resize(s, b->bytes, capacity);
  if (!bytes) return 0;
  b->bytes = bytes;
  b->capacity = capacity;
  return 1;
}

/* Short texts go in two moves of 16 bytes: both sides have room beyond their end. */
static inline void append(Bytes *b, const u8 *from, size_t length) {
  u8 *to = b->bytes + b->used;
  b->used += length;
  if (LIKELY(length <= 32)) {
    memcpy(to, from, 16);
    memcpy(to + 16, from + 16, 16);
  } else {
    memcpy(to, from, length);
  }
}

/* ---- Words --------------------------------------------------------------------------------------------- */

static inline u64 eight(const u8 *p) {
  u64 v;
  memcpy(&v, p, 8);
  return v;
}

static inline u64 folded(u64 a, u64 b) {
  u128 product = (u128)a * b;
  return (u64)product ^ (u64)(product >> 64);
}

/* Whether two strings of a length are equal. Reads up to 8 bytes beyond their ends. */
static inline int equal(const u8 *a, const u8 *b, size_t n) {
  for (; n > 8; a += 8, b += 8, n -= 8) if (eight(a) != eight(b)) return 0;
  return !n || (eight(a) ^ eight(b)) << (64 - 8 * n) == 0;
}

/* Reads up to 16 bytes beyond the end; what it reads there does not count. */
static inline u32 hash_of(const Scanner *s, const u8 *p, size_t n) {
  u64 a = s->seed[0] ^ n, b = s->seed[1];
  for (; n > 16; p += 16, n -= 16) a = folded(eight(p) ^ b, eight(p + 8) ^ a);
  u64 low = n >= 8 ? eight(p) : n ? eight(p) << (64 - 8 * n) : 0;
  u64 high = n > 8 ? eight(p + 8) << (128 - 8 * n) : 0;
  a = folded(folded(low ^ b, high ^ a) ^ b, a | 1);
  return (u32)(a ^ a >> 32);
}

static void words_free(Words *w) {
  free(w->slots);
  free(w->offsets);
  free(w->bytes.bytes);
  memset(w, 0, sizeof *w);
}

static int words_rehash(Scanner *s, Words *w, u32 mask) {
  Slot *slots = zeros(s, ((size_t)mask + 1) * sizeof *slots);
  if (!slots) return 0;
  for (u32 i = 0; w->slots && i <= w->mask; i++) {
    if (!w->slots[i].word) continue;
    u32 j = w->slots[i].hash & mask;
    while (slots[j].word) j = (j + 1) & mask;
    slots[j] = w->slots[i];
  }
  free(w->slots);
  w->slots = slots;
  w->mask = mask;
  return 1;
}

static int words_open(Scanner *s, Words *w) {
  if (!w->offsets) {
    if (!(w->offsets = resize(s, 0, 1024))) return 0;
    w->offsets_capacity = 1024;
    w->offsets[0] = 0;
  }
  return words_rehash(s, w, 255);
}

/* Room for one more word, or DICTIONARY_FULL. The first word always fits. */
static int words_reserve(Scanner *s, Words *w, size_t n) {
  i64 used = (i64)(w->bytes.used + n);
  if (w->count && (w->count >= s->limits.words_most || used > s->limits.words_bytes)) {
    s->error = DICTIONARY_FULL;
    s->full = w;
    return 0;
  }
  if (!reserve(s, &w->bytes, n)) return 0;
  if (w->offsets_capacity < ((size_t)w->count + 2) * sizeof(i32)) {
    i32 *offsets = resize(s, w->offsets, w->offsets_capacity * 2);
    if (!offsets) return 0;
    w->offsets = offsets;
    w->offsets_capacity *= 2;
  }
  return (u64)w->count * 2 < w->mask || words_rehash(s, w, w->mask * 2 + 1);
}

static u32 words_add(Scanner *s, Words *w, u32 hash, const u8 *p, size_t n) {
  if (!words_reserve(s, w, n)) return 0;
  u32 i = hash & w->mask;
  while (w->slots[i].word) i = (i + 1) & w->mask;
  memcpy(w->bytes.bytes + w->bytes.used, p, n);
  w->bytes.used += n;
  w->offsets[++w->count] = (i32)w->bytes.used;
  w->slots[i] = (Slot){hash, w->count};
  return w->count;
}

static inline int is_word(const Words *w, u32 word, const u8 *p, size_t n) {
  const i32 *at = w->offsets + word - 1;
  return (size_t)(at[1] - at[0]) == n && equal(w->bytes.bytes + at[0], p, n);
}

/* The number of a string, from 1; 0 with an error. */
static u32 word_of(Scanner *s, Words *w, const u8 *p, size_t n) {
  if (w->last && is_word(w, w->last, p, n)) return w->last;
  if (UNLIKELY(!w->slots) && !words_open(s, w)) return 0;
  u32 hash = hash_of(s, p, n), i = hash & w->mask;
  for (int probe = 0; probe < PROBES; probe++, i = (i + 1) & w->mask) {
    Slot slot = w->slots[i];
    if (!slot.word) return words_add(s, w, hash, p, n);
    if (slot.hash == hash && is_word(w, slot.word, p, n)) return w->last = slot.word;
  }
  s->error = DICTIONARY_FULL;
  s->full = w;
  return 0;
}

/* A string that must be searched for secrets. Where the set is full, rows are searched instead. */
static void note(Scanner *s, const u8 *p, size_t n) {
  int error = s->error;
  Words *full = s->full;
  if (s->strings_full || word_of(s, &s->strings, p, n) || s->full != &s->strings) return;
  s->error = error;
  s->full = full;
  s->strings_full = 1;
  words_free(&s->strings);
}

/* ---- Cells --------------------------------------------------------------------------------------------- */

/* Zeros for a column of the batch. */
static void *column_memory(Scanner *s, size_t size) {
  Batch *b = s->batch;
  size = (size + 63) & ~(size_t)63;
  for (int i = 0; i < BLOCKS; i++) {
    Block *block = &b->blocks[i];
    /* A block has room for as many columns as a trace often has. */
    if (!block->bytes && !open_block(s, block, (size_t)s->limits.batch_rows * 9 * 28 + 4096)) return 0;
    if (block->size - block->used < size) continue;
    block->used += size;
    return block->bytes + block->used - size;
  }
  s->error = NO_MEMORY;
  return 0;
}

/* `valid` last: a column without it is not open. Codes have none. */
static int open_column(Scanner *s, int column) {
  Batch *b = s->batch;
  size_t rows = (size_t)s->limits.batch_rows;
  u8 *values = column_memory(s, column < CODES ? 4 * rows : column < FIRST_TEXT ? 8 * rows : 4 * (rows + 1));
  u8 *valid = 0;
  if (!values) return 0;
  if (column >= CODES && !(valid = column_memory(s, column < FIRST_TEXT ? rows : rows / 8 + PADDING)))
    return 0;
  b->values[column] = values;
  b->valid[column] = valid;
  return 1;
}

static inline void put_int(Scanner *s, int column, i64 value) {
  Batch *b = s->batch;
  if (UNLIKELY(!b->valid[column]) && !open_column(s, column)) return;
  ((i64 *)b->values[column])[s->row] = value;
  b->valid[column][s->row] = 1;
}

static void put_double(Scanner *s, int column, double value) {
  i64 bits;
  memcpy(&bits, &value, 8);
  put_int(s, column, bits);
}

static inline void put_code(Scanner *s, int column, const u8 *p, size_t n) {
  Batch *b = s->batch;
  if (UNLIKELY(!b->values[column]) && !open_column(s, column)) return;
  ((u32 *)b->values[column])[s->row] = word_of(s, &s->words[column], p, n);
}

/* `length` bytes that were appended to the column's text are this row's. */
static inline void set_text(Scanner *s, int column) {
  Batch *b = s->batch;
  if (UNLIKELY(!b->valid[column]) && !open_column(s, column)) return;
  b->valid[column][s->row >> 3] |= (u8)(1 << (s->row & 7));
}

static void put_text(Scanner *s, int column, const u8 *p, size_t n) {
  Bytes *b = &s->batch->texts[column - FIRST_TEXT];
  if (!reserve(s, b, n)) return;
  append(b, p, n);
  set_text(s, column);
}

/* Makes columns of the row at hand null. */
static void clear_cells(Scanner *s, int from, int to) {
  Batch *b = s->batch;
  for (int c = from; c < to; c++) {
    if (c >= FIRST_TEXT) {
      b->texts[c - FIRST_TEXT].used = s->texts_before[c - FIRST_TEXT];
      if (b->valid[c]) b->valid[c][s->row >> 3] &= (u8)~(1 << (s->row & 7));
    } else if (c < CODES) {
      if (b->values[c]) ((u32 *)b->values[c])[s->row] = 0;
    } else if (b->valid[c]) {
      ((i64 *)b->values[c])[s->row] = 0;
      b->valid[c][s->row] = 0;
    }
  }
}

static void clear_arguments(Scanner *s) {
  clear_cells(s, C_shapes, CODES);
  clear_cells(s, C_correlation, FIRST_TEXT);
}

static void batch_free(Batch *b) {
  for (int i = 0; i < BLOCKS; i++) close_block(&b->blocks[i]);
  for (int t = 0; t < TEXTS; t++) free(b->texts[t].bytes);
  free(b);
}

static int open_batch(Scanner *s) {
  Batch *b = s->batch = zeros(s, sizeof *b);
  if (!b) return 0;
  if (!(b->flags = column_memory(s, (size_t)s->limits.batch_rows))) {
    batch_free(b);
    s->batch = 0;
    return 0;
  }
  b->restarted = s->restarted;
  s->restarted = 0;
  s->row = 0;
  return 1;
}

/* ---- Tokens -------------------------------------------------------------------------------------------- */

/* What is wrong at `at` may be right with more text. */
#define FAIL(s, at) \
  do { \
    (s)->error = (at) >= (s)->end ? MORE : REFUSED; \
    return 0; \
  } while (0)

static inline const u8 *blanks(const u8 *p) {
  if (LIKELY(*p > ' ')) return p;
  if (*p == ' ' && p[1] > ' ') return p + 1;
#ifdef SIMD
  if (*p == '\n' || *p == ' ') { /* a line's end and the indentation of the next */
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m128i space = _mm_cmpeq_epi8(v, _mm_set1_epi8(' ')), line = _mm_cmpeq_epi8(v, _mm_set1_epi8('\n'));
    __m128i blank = _mm_or_si128(space, line);
    p += __builtin_ctz(~(unsigned)_mm_movemask_epi8(blank));
  }
#endif
  while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
  return p;
}

static inline int is_digit(u8 c) { return (u8)(c - '0') < 10; }
static inline int goes_on(u8 c) { return (c & 0xC0) == 0x80; }

/* Behind one character beyond ASCII. */
static const u8 *utf8(Scanner *s, const u8 *p) {
  u8 c = *p;
  if (c >= 0xC2 && c <= 0xDF && goes_on(p[1])) return p + 2;
  if (c >= 0xE0 && c <= 0xEF && goes_on(p[1]) && goes_on(p[2])) {
    int overlong = c == 0xE0 && p[1] < 0xA0, surrogate = c == 0xED && p[1] > 0x9F;
    if (!overlong && !surrogate) return p + 3;
  }
  if (c >= 0xF0 && c <= 0xF4 && goes_on(p[1]) && goes_on(p[2]) && goes_on(p[3])) {
    int overlong = c == 0xF0 && p[1] < 0x90, beyond = c == 0xF4 && p[1] > 0x8F;
    if (!overlong && !beyond) return p + 4;
  }
  FAIL(s, p + 3);
}

static int hex4(const u8 *p) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    u8 c = p[i], lower = c | 32;
    int digit = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

/* Behind an escape. A surrogate must have its other half. */
static const u8 *escape(Scanner *s, const u8 *p) {
  s->escaped = 1;
  u8 c = p[1];
  if (c == 'u') {
    int unit = hex4(p + 2);
    if (unit < 0) FAIL(s, p + 5);
    if (unit < 0xD800 || unit > 0xDFFF) return p + 6;
    int other = p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (unit < 0xDC00 && other >= 0xDC00 && other <= 0xDFFF) return p + 12;
    FAIL(s, p + 11);
  }
  if (c && strchr("\"\\/bfnrt", c)) return p + 2;
  FAIL(s, p + 1);
}

/* From behind the opening quote to the closing one. */
static inline const u8 *string_end(Scanner *s, const u8 *p) {
  for (;;) {
#ifdef SIMD
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
    __m128i other = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20)); /* signed: control signs and all beyond ASCII */
    unsigned found = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), other));
    if (!found) {
      p += 16;
      continue;
    }
    p += __builtin_ctz(found);
#else
    while (*p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
#endif
    if (LIKELY(*p == '"')) return p;
    if (*p == '\\') p = escape(s, p);
    else if (*p >= 0x80) p = utf8(s, p);
    else FAIL(s, p);
    if (!p) return 0;
  }
}

static const u8 *number_end(Scanner *s, const u8 *p) {
  if (*p == '-') p++;
  if (*p == '0') p++;
  else if (is_digit(*p)) while (is_digit(*p)) p++;
  else FAIL(s, p);
  if (*p == '.') {
    s->fraction = 1;
    if (!is_digit(*++p)) FAIL(s, p);
    while (is_digit(*p)) p++;
  }
  if ((*p | 32) == 'e') {
    s->fraction = 1;
    if (*++p == '+' || *p == '-') p++;
    if (!is_digit(*p)) FAIL(s, p);
    while (is_digit(*p)) p++;
  }
  if (p >= s->end) FAIL(s, p);
  return p;
}

static const u8 *literal_end(Scanner *s, const u8 *p) {
  if (!memcmp(p, "true", 4) || !memcmp(p, "null", 4)) return p + 4;
  if (!memcmp(p, "false", 5)) return p + 5;
  if (*p != 't' && *p != 'n' && *p != 'f') FAIL(s, p);
  FAIL(s, p + 4);
}

/* An integer of 64 bits written as printing it gives; 0 if the number is not one. `end` is behind it. */
static inline int plain_int(const u8 *p, const u8 **end, i64 *value) {
  int negative = *p == '-';
  const u8 *digits = p += negative;
  u64 x = 0;
  while (is_digit(*p)) x = x * 10 + (u64)(*p++ - '0');
  size_t count = (size_t)(p - digits);
  if (count == 0 || count > 19 || (*digits == '0' && (count > 1 || negative))) return 0;
  if (count == 19 && x > (u64)INT64_MAX) return 0;
  *value = negative ? -(i64)x : (i64)x;
  *end = p;
  return 1;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

/* digits / 10^decimals, rounded once to the nearest double, ties to even. */
static double quotient(u64 digits, int decimals) {
  u64 divisor = 1;
  if (digits <= 1ull << 53) return (double)digits / powers[decimals];
  for (int i = 0; i < decimals; i++) divisor *= 10;
  int shift = __builtin_clzll(digits);
  u128 dividend = (u128)(digits << shift) << 64, q = dividend / divisor;
  int rest = dividend % divisor != 0;
  u64 high = (u64)(q >> 64);
  int drop = (high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((u64)q)) - 53;
  u64 mantissa = (u64)(q >> drop);
  u128 lost = q & (((u128)1 << drop) - 1), half = (u128)1 << (drop - 1);
  if (lost > half || (lost == half && (rest || (mantissa & 1)))) mantissa++;
  u64 bits = (u64)(1023 + drop - shift - 64) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return (double)mantissa * scale;
}

/* A number without exponent, of at most 19 digits; 0 if it is another one. */
static int plain_real(const u8 *p, const u8 *end, double *value) {
  int negative = *p == '-', count = 0, decimals = 0, point = 0;
  u64 digits = 0;
  for (p += negative; p < end; p++) {
    if (*p == '.') {
      point = 1;
      continue;
    }
    if (!is_digit(*p)) return 0;
    if (digits || *p != '0') count++;
    decimals += point;
    if (count > 19 || decimals > 19) return 0;
    digits = digits * 10 + (u64)(*p - '0');
  }
  *value = negative ? -quotient(digits, decimals) : quotient(digits, decimals);
  return 1;
}

static u8 *put_utf8(u8 *to, u32 c) {
  if (c < 0x80) {
    *to++ = (u8)c;
    return to;
  }
  int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const u8 lead[] = {0, 0xC0, 0xE0, 0xF0};
  *to++ = (u8)(lead[more] | c >> (6 * more));
  while (more--) *to++ = (u8)(0x80 | (c >> (6 * more) & 63));
  return to;
}

/* The string that valid JSON between two quotes stands for, in `scratch`. */
static int decode(Scanner *s, const u8 *p, const u8 *end) {
  Bytes *b = &s->scratch;
  b->used = 0;
  if (!reserve(s, b, (size_t)(end - p))) return 0;
  u8 *to = b->bytes;
  while (p < end) {
    if (*p != '\\') {
      *to++ = *p++;
      continue;
    }
    u8 c = p[1];
    p += 2;
    if (c == 'u') {
      u32 unit = (u32)hex4(p);
      p += 4;
      if (unit >= 0xD800 && unit < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + ((u32)hex4(p + 2) - 0xDC00);
        p += 6;
      }
      to = put_utf8(to, unit);
    } else {
      *to++ = c == 'b' ? 8 : c == 'f' ? 12 : c == 'n' ? 10 : c == 'r' ? 13 : c == 't' ? 9 : c;
    }
  }
  b->used = (size_t)(to - b->bytes);
  memset(to, 0, 16);
  return 1;
}

/* The code of the string between two quotes; `escaped` says whether it holds an escape. */
static inline void put_string(Scanner *s, int column, const u8 *p, const u8 *end) {
  if (LIKELY(!s->escaped)) put_code(s, column, p, (size_t)(end - p));
  else if (decode(s, p, end)) put_code(s, column, s->scratch.bytes, s->scratch.used);
}

/* ---- Values -------------------------------------------------------------------------------------------- */

/* Copies the arguments that were read up to `p`. There is room: `tw_feed` reserves as much as there is text. */
static inline void copy_to(Scanner *s, const u8 *p) {
  append(&s->batch->texts[C_args - FIRST_TEXT], s->copied, (size_t)(p - s->copied));
  s->copied = p;
}

/* Skips blanks, which are not copied. */
static inline const u8 *skip(Scanner *s, const u8 *p) {
  if (LIKELY(*p > ' ')) return p;
  copy_to(s, p);
  return s->copied = blanks(p);
}

/* The kind of each open bracket, 1 for an object: 64 in a register, those before them in `kinds`. */
static int open_word(Scanner *s, u64 kinds, size_t depth) {
  size_t at = depth / 64 - 1, size = (at + 1) * sizeof(u64);
  if (size > s->kinds_capacity) {
    u64 *found = resize(s, s->kinds, size * 2);
    if (!found) return 0;
    s->kinds = found;
    s->kinds_capacity = size * 2;
  }
  s->kinds[at] = kinds;
  return 1;
}

/* Behind a value of any type; its tokens are copied, its keys and strings noted if `notes`. */
static const u8 *value_end(Scanner *s, const u8 *p, int notes) {
  u64 kinds = 0;
  size_t depth = 0;
value:
  if (is_digit(*p) && *p != '0') {
    const u8 *start = p;
    do p++;
    while (is_digit(*p));
    if (UNLIKELY(*p == '.' || (*p | 32) == 'e') && !(p = number_end(s, start))) return 0;
  } else if (*p == '"') {
    const u8 *end = string_end(s, p + 1);
    if (!end) return 0;
    if (notes && end - p > 8) note(s, p + 1, (size_t)(end - p - 1));
    p = end + 1;
  } else if (*p == '[' || *p == '{') {
    if (UNLIKELY(depth % 64 == 0 && depth) && !open_word(s, kinds, depth)) return 0;
    u8 close = *p + 2;
    kinds = kinds << 1 | (*p == '{');
    depth++;
    p = skip(s, p + 1);
    if (*p == close) goto close;
    if (kinds & 1) goto key;
    goto value;
  } else if (*p == '-' || *p == '0') {
    if (!(p = number_end(s, p))) return 0;
  } else if (!(p = literal_end(s, p))) {
    return 0;
  }
after:
  if (!depth) return p;
  p = skip(s, p);
  if (*p == ',') {
    p = skip(s, p + 1);
    if (kinds & 1) goto key;
    goto value;
  }
  if (*p != (kinds & 1 ? '}' : ']')) FAIL(s, p);
close:
  p++;
  kinds >>= 1;
  depth--;
  if (UNLIKELY(depth % 64 == 0 && depth)) kinds = s->kinds[depth / 64 - 1];
  goto after;
key:
  if (*p != '"') FAIL(s, p);
  {
    const u8 *end = string_end(s, p + 1);
    if (!end) return 0;
    if (notes) note(s, p + 1, (size_t)(end - p - 1));
    p = skip(s, end + 1);
  }
  if (*p != ':') FAIL(s, p);
  p = skip(s, p + 1);
  goto value;
}

/* ---- Arguments ----------------------------------------------------------------------------------------- */

/* PLAIN: no column is made from it; named here because it is frequent, and no secret. */
typedef enum { UNKNOWN, PLAIN, INT, REAL, TRIPLE, JSON, TEXT } Kind;

typedef struct {
  char name[40]; /* longer than any, so that eight bytes may be read at its end */
  u8 length, kind, column;
} Key;

#define KEY(name, kind, column) {name, sizeof name - 1, kind, column}
static const Key known_keys[] = {
  KEY("correlation", INT, C_correlation),
  KEY("External id", INT, C_external_id),
  KEY("external id", INT, C_external_id),
  KEY("stream", INT, C_stream),
  KEY("Stream Id", INT, C_stream_id),
  KEY("device", INT, C_device),
  KEY("Device Id", INT, C_device_id),
  KEY("bytes", INT, C_bytes),
  KEY("Bytes", INT, C_bytes),
  KEY("Sequence number", INT, C_sequence_number),
  KEY("Fwd thread id", INT, C_forward_thread),
  KEY("Python id", INT, C_python_id),
  KEY("Python parent id", INT, C_python_parent_id),
  KEY("Python module id", INT, C_module_id),
  KEY("Input Dims", JSON, C_shapes),
  KEY("Input dims", JSON, C_shapes),
  KEY("Input type", JSON, C_dtypes),
  KEY("grid", TRIPLE, C_grid_x),
  KEY("block", TRIPLE, C_block_x),
  KEY("registers per thread", INT, C_registers_per_thread),
  KEY("shared memory", INT, C_shared_memory_bytes),
  KEY("est. achieved occupancy %", REAL, C_occupancy_percent),
  KEY("blocks per SM", REAL, C_blocks_per_sm),
  KEY("warps per SM", REAL, C_warps_per_sm),
  KEY("memory bandwidth (GB/s)", REAL, C_bandwidth),
  KEY("graph id", INT, C_graph_id),
  KEY("graph node id", INT, C_graph_node_id),
  KEY("Collective name", TEXT, C_collective),
  KEY("Process Group Name", TEXT, C_process_group),
  KEY("Process Group Ranks", TEXT, C_group_ranks),
  KEY("Group size", INT, C_group_size),
  KEY("dtype", TEXT, C_collective_dtype),
  KEY("In msg nelems", INT, C_in_elements),
  KEY("Out msg nelems", INT, C_out_elements),
  KEY("Seq", INT, C_collective_sequence),
  KEY("Device Type", INT, C_device_type),
  KEY("Addr", INT, C_address),
  KEY("Total Allocated", INT, C_total_allocated_bytes),
  KEY("Total Reserved", INT, C_total_reserved_bytes),
  KEY("Ev Idx", INT, C_event_index),
  KEY("Profiler Event Index", INT, C_event_index),
  KEY("cuda_sync_kind", TEXT, C_sync_kind),
  KEY("wait_on_stream", INT, C_wait_on_stream),
  KEY("wait_on_cuda_event_id", INT, C_wait_on_event),
  KEY("wait_on_cuda_event_record_corr_id", INT, C_wait_on_correlation),
  KEY("Record function id", PLAIN, 0),
  KEY("Concrete Inputs", PLAIN, 0),
  KEY("Input Strides", PLAIN, 0),
  KEY("cbid", PLAIN, 0),
  KEY("cid", PLAIN, 0),
  KEY("queued", PLAIN, 0),
  KEY("context", PLAIN, 0),
  KEY("kind", PLAIN, 0),
};
enum { KNOWN_KEYS = sizeof known_keys / sizeof *known_keys };

static inline u8 key_hash(const u8 *p, size_t n) {
  return (u8)(p[0] * 31u + p[n - 1] * 7u + p[n >> 1] * 131u + n * 57u);
}

static void keys_open(Scanner *s) {
  for (int i = 0; i < KNOWN_KEYS; i++) {
    u8 at = key_hash((const u8 *)known_keys[i].name, known_keys[i].length);
    while (s->keys[at]) at++;
    s->keys[at] = (u8)(i + 1);
  }
}

static inline const Key *known_key(const Scanner *s, const u8 *p, size_t n) {
  if (!n) return 0;
  for (u8 at = key_hash(p, n); s->keys[at]; at++) {
    const Key *key = &known_keys[s->keys[at] - 1];
    if (key->length == n && equal((const u8 *)key->name, p, n)) return key;
  }
  return 0;
}

static inline int ends_value(u8 c) { return c == ',' || c == '}' || c == ']' || c <= ' '; }

/* The readers of typed arguments: the value is at `p`; answer what is behind it, 0 with an error. What has not
   the usual type makes the row SLOW. */

/* "616" counts as 616, as a cast to an integer does. */
static const u8 *read_int(Scanner *s, const u8 *p, int column, u8 *flags) {
  const u8 *end;
  i64 value;
  if (LIKELY(plain_int(p, &end, &value) && ends_value(*end))) {
    if (end >= s->end) FAIL(s, end);
    put_int(s, column, value);
    return end;
  }
  if (*p == '"' && plain_int(p + 1, &end, &value) && *end == '"') put_int(s, column, value);
  else if (*p != 'n') *flags |= SLOW;
  return value_end(s, p, 1);
}

static const u8 *read_real(Scanner *s, const u8 *p, int column, u8 *flags) {
  const u8 *end = value_end(s, p, 1);
  double value;
  if (!end) return 0;
  if ((is_digit(*p) || *p == '-') && plain_real(p, end, &value)) put_double(s, column, value);
  else if (*p != 'n') *flags |= SLOW;
  return end;
}

static const u8 *read_triple(Scanner *s, const u8 *p, int column, u8 *flags) {
  const u8 *at = p;
  i64 value[3];
  int count = 0;
  while (count < 3 && *at == (count ? ',' : '[') && plain_int(blanks(at + 1), &at, &value[count])) {
    at = blanks(at);
    count++;
  }
  if (count == 3 && *at == ']') for (int i = 0; i < 3; i++) put_int(s, column + i, value[i]);
  else if (*p != 'n') *flags |= SLOW;
  return value_end(s, p, 1);
}

/* The value's minified text is a word. Its strings are not noted: words are searched. */
static const u8 *read_json(Scanner *s, const u8 *p, int column, u8 *flags) {
  const Bytes *args = &s->batch->texts[C_args - FIRST_TEXT];
  copy_to(s, p);
  size_t from = args->used;
  s->escaped = s->fraction = 0;
  const u8 *end = value_end(s, p, 0);
  if (!end) return 0;
  copy_to(s, end);
  if (s->escaped || s->fraction) *flags |= SLOW;
  else if (*p != 'n') put_code(s, column, args->bytes + from, args->used - from);
  return end;
}

/* A string, an integer or a list as text. */
static const u8 *read_text(Scanner *s, const u8 *p, int column, u8 *flags) {
  const u8 *end;
  i64 value;
  if (*p == '"') {
    s->escaped = 0;
    if (!(end = string_end(s, p + 1))) return 0;
    put_string(s, column, p + 1, end);
    if (end - p > 8) note(s, p + 1, (size_t)(end - p - 1));
    return end + 1;
  }
  if (*p == '[') return read_json(s, p, column, flags);
  if ((is_digit(*p) || *p == '-') && plain_int(p, &end, &value) && ends_value(*end)) {
    if (end >= s->end) FAIL(s, end);
    put_code(s, column, p, (size_t)(end - p));
    return end;
  }
  if (*p != 'n') *flags |= SLOW;
  return value_end(s, p, 1);
}

static inline const u8 *read_argument(Scanner *s, const u8 *p, const Key *key, u8 *flags) {
  switch (key->kind) {
  case INT: return read_int(s, p, key->column, flags);
  case REAL: return read_real(s, p, key->column, flags);
  case TRIPLE: return read_triple(s, p, key->column, flags);
  case JSON: return read_json(s, p, key->column, flags);
  case TEXT: return read_text(s, p, key->column, flags);
  default: return value_end(s, p, 1);
  }
}

/* An object, minified into `args`; known keys fill their columns. */
static const u8 *read_arguments(Scanner *s, const u8 *p, u8 *flags) {
  u64 had = 0;
  s->copied = p;
  p = skip(s, p + 1);
  if (*p == '}') goto end;
  for (;;) {
    if (*p != '"') FAIL(s, p);
    s->escaped = 0;
    const u8 *name = p + 1, *name_end = string_end(s, name);
    if (!name_end) return 0;
    const Key *key = known_key(s, name, (size_t)(name_end - name));
    if (UNLIKELY(!key)) {
      note(s, name, (size_t)(name_end - name));
      if (s->escaped) *flags |= SLOW; /* it may spell a known key */
    }
    p = skip(s, name_end + 1);
    if (*p != ':') FAIL(s, p);
    p = skip(s, p + 1);
    if (key && key->kind > PLAIN) {
      u64 bit = 1ull << key->column;
      if (key->column == C_collective) *flags |= COLLECTIVE;
      if (UNLIKELY(had & bit)) *flags |= SLOW;
      p = had & bit ? value_end(s, p, 1) : read_argument(s, p, key, flags);
      had |= bit;
    } else {
      p = value_end(s, p, 1);
    }
    if (!p) return 0;
    p = skip(s, p);
    if (*p == '}') goto end;
    if (*p != ',') FAIL(s, p);
    p = skip(s, p + 1);
  }
end:
  copy_to(s, p + 1);
  return p + 1;
}
_Static_assert(FIRST_TEXT <= 64, "a bit for each typed column");

/* ---- Events -------------------------------------------------------------------------------------------- */

/* Microseconds to nanoseconds, exactly; the digits are kept where printing the nanoseconds gives others. */
static void read_time(Scanner *s, const u8 *p, const u8 *end, int column, int text, u8 *flags) {
  const u8 *at = p + (*p == '-'), *whole = at;
  u64 value = 0;
  while (is_digit(*at)) value = value * 10 + (u64)(*at++ - '0');
  int decimals = 0, point = *at == '.';
  if (point) for (at++; is_digit(*at) && decimals < 3; decimals++) value = value * 10 + (u64)(*at++ - '0');
  const u8 *kept = at;
  while (*at == '0') at++;
  int exact = at == end;
  while (is_digit(*at)) at++;
  if (at != end || kept - whole - point > 19) goto odd; /* an exponent, or too long */
  for (int i = decimals; i < 3; i++) if (__builtin_mul_overflow(value, 10, &value)) goto odd;
  if (value > (u64)INT64_MAX) goto odd;
  if (!exact) *flags |= SUBNS;
  put_int(s, column, *p == '-' ? -(i64)value : (i64)value);
  int printed = exact && kept == end && *p != '-' && (!point || (decimals == 3 && value % 1000));
  if (!printed) put_text(s, text, p, (size_t)(end - p));
  return;
odd:
  *flags |= ODD;
}

/* The keys of an event. */
enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, ID = 32, TS = 64, DUR = 128, BP = 256, S = 512 };
enum { ARGS = 1024 };

static inline u32 event_key(const u8 *p, size_t n) {
  switch (n) {
  case 1: return *p == 's' ? S : 0;
  case 2:
    if (*p == 'p') return p[1] == 'h' ? PH : 0;
    if (*p == 't') return p[1] == 's' ? TS : 0;
    if (*p == 'i') return p[1] == 'd' ? ID : 0;
    return p[0] == 'b' && p[1] == 'p' ? BP : 0;
  case 3:
    if (p[1] == 'i' && p[2] == 'd') return *p == 'p' ? PID : *p == 't' ? TID : 0;
    return !memcmp(p, "cat", 3) ? CAT : !memcmp(p, "dur", 3) ? DUR : 0;
  case 4: return !memcmp(p, "name", 4) ? NAME : !memcmp(p, "args", 4) ? ARGS : 0;
  default: return 0;
  }
}

typedef struct {
  const u8 *start, *end;
} Range;

/* A string as the value of a key of the event, between `p` and `end` with its quotes. */
static inline void string_value(Scanner *s, u32 key, Range v, Range *bp, Range *scope, u8 *flags) {
  const u8 *p = v.start + 1, *end = v.end - 1, *after;
  i64 number;
  switch (key) {
  case PH: put_string(s, C_ph, p, end); break;
  case CAT: put_string(s, C_cat, p, end); break;
  case NAME: put_string(s, C_name, p, end); break;
  case PID: put_code(s, C_pid, v.start, (size_t)(v.end - v.start)); break;
  case TID: put_code(s, C_tid, v.start, (size_t)(v.end - v.start)); break;
  case ID: /* a string that reads as a number is not told from one by its text */
    if (s->escaped || (plain_int(p, &after, &number) && after == end)) *flags |= ODD;
    if (end - p >= 8) note(s, p, (size_t)(end - p));
    put_text(s, C_flow_id, p, (size_t)(end - p));
    break;
  case BP: *bp = v; break;
  case S: *scope = v; break;
  default: *flags |= ODD;
  }
  if (s->escaped && (key == BP || key == S)) *flags |= ODD;
}

static inline void number_value(Scanner *s, u32 key, Range v, u8 *flags) {
  const u8 *after;
  i64 number;
  switch (key) {
  case TS: read_time(s, v.start, v.end, C_ts, C_ts_text, flags); break;
  case DUR: read_time(s, v.start, v.end, C_dur, C_dur_text, flags); break;
  case PID: put_code(s, C_pid, v.start, (size_t)(v.end - v.start)); break;
  case TID: put_code(s, C_tid, v.start, (size_t)(v.end - v.start)); break;
  case ID:
    if (!plain_int(v.start, &after, &number) || after != v.end) *flags |= ODD;
    put_text(s, C_flow_id, v.start, (size_t)(v.end - v.start));
    break;
  default: *flags |= ODD;
  }
}

/* `bp` and `s` as the JSON object that the column `extra` holds. */
static void put_extra(Scanner *s, Range bp, Range scope) {
  Bytes *b = &s->scratch;
  b->used = 0;
  if (!reserve(s, b, (size_t)(bp.end - bp.start) + (size_t)(scope.end - scope.start) + 32)) return;
  u8 *to = b->bytes;
#define ADD(from, size) (memcpy(to, from, size), to += (size))
  if (bp.start) {
    ADD("{\"bp\":", 6);
    ADD(bp.start, (size_t)(bp.end - bp.start));
  }
  if (scope.start) {
    ADD(bp.start ? ",\"s\":" : "{\"s\":", 5);
    ADD(scope.start, (size_t)(scope.end - scope.start));
  }
  ADD("}", 1);
#undef ADD
  memset(to, 0, 16);
  put_code(s, C_extra, b->bytes, (size_t)(to - b->bytes));
}

/* Valid JSON without the blanks between its tokens. */
static void put_minified(Scanner *s, const u8 *p, const u8 *end) {
  Bytes *b = &s->batch->texts[C_text - FIRST_TEXT];
  if (!reserve(s, b, (size_t)(end - p))) return;
  u8 *to = b->bytes + b->used;
  int inside = 0;
  for (; p < end; p++) {
    if (!inside && *p <= ' ') continue;
    *to++ = *p;
    if (*p == '"') inside = !inside;
    else if (*p == '\\') *to++ = *++p;
  }
  b->used = (size_t)(to - b->bytes);
  set_text(s, C_text);
}

static const u8 *read_members(Scanner *s, const u8 *p, u8 *flags) {
  u32 had = 0;
  Range bp = {0, 0}, scope = {0, 0};
  p = blanks(p + 1);
  if (*p == '}') {
    *flags |= ODD;
    return p + 1;
  }
  for (;;) {
    if (*p != '"') FAIL(s, p);
    const u8 *name = p + 1, *name_end = string_end(s, name);
    if (!name_end) return 0;
    p = blanks(name_end + 1);
    if (*p != ':') FAIL(s, p);
    p = blanks(p + 1);
    u32 key = event_key(name, (size_t)(name_end - name));
    if (UNLIKELY(!key || (had & key))) {
      *flags |= ODD;
      key = 0;
    }
    had |= key;
    Range v = {p, p};
    if (*p == '"') {
      s->escaped = 0;
      if (!(p = string_end(s, p + 1))) return 0;
      v.end = ++p;
      string_value(s, key, v, &bp, &scope, flags);
    } else if (is_digit(*p) || *p == '-') {
      if (!(p = number_end(s, p))) return 0;
      v.end = p;
      number_value(s, key, v, flags);
    } else if (key == ARGS && *p == '{') {
      if (!(p = read_arguments(s, p, flags))) return 0;
      set_text(s, C_args);
    } else {
      *flags |= ODD;
      size_t used = s->batch->texts[C_args - FIRST_TEXT].used;
      s->copied = p;
      if (!(p = value_end(s, p, 0))) return 0;
      s->batch->texts[C_args - FIRST_TEXT].used = used;
    }
    p = blanks(p);
    if (*p == '}') break;
    if (*p != ',') FAIL(s, p);
    p = blanks(p + 1);
  }
  if (bp.start || scope.start) put_extra(s, bp, scope);
  return p + 1;
}

/* One element of the array as the row at hand; 0 with an error. */
static const u8 *read_element(Scanner *s, const u8 *p) {
  const u8 *start = p;
  u8 flags = 0;
  s->error = NONE;
  for (int t = 0; t < TEXTS; t++) s->texts_before[t] = s->batch->texts[t].used;
  if (LIKELY(*p == '{')) {
    p = read_members(s, p, &flags);
  } else {
    flags = ODD;
    s->copied = p;
    p = value_end(s, p, 0);
    if (p && p >= s->end && is_digit(p[-1])) FAIL(s, p);
  }
  if (!p || s->error != NONE) return 0;
  if (UNLIKELY(flags & (ODD | SLOW | SUBNS))) {
    if (flags & ODD) {
      clear_cells(s, 0, COLUMNS);
      flags = ODD;
    } else if (flags & SLOW) {
      clear_arguments(s);
    }
    put_minified(s, start, p);
    if (s->error != NONE) return 0;
  }
  s->batch->flags[s->row] = flags;
  return p;
}

/* The row at hand is whole. */
static inline void end_row(Scanner *s) {
  Batch *b = s->batch;
  s->row++;
  for (int t = 0; t < TEXTS; t++) {
    i32 *offsets = b->values[FIRST_TEXT + t];
    if (offsets) offsets[s->row] = (i32)b->texts[t].used;
  }
}

/* ---- Feeding ------------------------------------------------------------------------------------------- */

static int batch_is_full(const Scanner *s) {
  size_t bytes = 0;
  for (int t = 0; t < TEXTS; t++) bytes += s->batch->texts[t].used;
  return s->row >= s->limits.batch_rows || (i64)bytes > s->limits.batch_bytes;
}

static void restart(Scanner *s) {
  s->restarted |= 1ull << (s->full - s->words);
  words_free(s->full);
  s->full = 0;
}

/* Room for a row, and for the text at hand as its arguments. */
static int room(Scanner *s, size_t text) {
  if (!s->batch) {
    if (s->full) restart(s);
    if (!open_batch(s)) return 0;
  }
  return reserve(s, &s->batch->texts[C_args - FIRST_TEXT], text);
}

/* What to do about the error of an element: answers a state, or NONE to try the element again. */
static int recover(Scanner *s) {
  clear_cells(s, 0, COLUMNS);
  if (s->error != DICTIONARY_FULL) return s->error;
  if (s->row) return BATCH_ENDED;
  restart(s);
  s->batch->restarted |= s->restarted;
  s->restarted = 0;
  return NONE;
}

/* Reads elements until something is to be answered; `at` is then behind what was read. */
static int read_elements(Scanner *s) {
  const u8 *text = s->pending.bytes, *p = text + s->at;
  s->end = text + s->pending.used;
  for (;;) {
    p = blanks(p);
    s->at = (size_t)((p < s->end ? p : s->end) - text);
    if (p >= s->end) return MORE;
    if (*p == ']' && s->place != BEFORE_ELEMENT) return CLOSED;
    if (s->place == AFTER_ELEMENT) {
      if (*p != ',') return REFUSED;
      s->place = BEFORE_ELEMENT;
      p++;
      continue;
    }
    if (s->batch && batch_is_full(s)) return BATCH_ENDED;
    s->error = NO_MEMORY;
    if (!room(s, (size_t)(s->end - p))) return NO_MEMORY;
    const u8 *after = read_element(s, p);
    if (LIKELY(after != 0)) {
      end_row(s);
      s->place = AFTER_ELEMENT;
      p = after;
      continue;
    }
    int state = recover(s);
    if (state != NONE) return state;
  }
}

/* Keeps the text that is not read at the beginning of the buffer, and adds more. */
static int add_text(Scanner *s, const u8 *text, size_t length) {
  Bytes *b = &s->pending;
  if (s->at) {
    memmove(b->bytes, b->bytes + s->at, b->used - s->at);
    b->used -= s->at;
    s->dropped += (i64)s->at;
    s->at = 0;
  }
  if (!reserve(s, b, length)) return 0;
  if (length) memcpy(b->bytes + b->used, text, length);
  b->used += length;
  memset(b->bytes + b->used, 0, PADDING);
  return 1;
}

/* ---- Templates of arguments ---------------------------------------------------------------------------- */

/* Arguments as formats of printf and the numbers that they print, for all rows of a row group. The numbers
   outside strings are slots of a template. A slot with one value is text again; one that always equals a
   column of the table refers to it; the others are stored, the first of a template in the first column and
   so on. What is beyond the last column is text, so the template is one for each value. */

/* BIGINT columns in Arrow's layout; null counts as 0. */
typedef struct {
  const i64 *values;
  const u8 *valid;
  i64 first; /* row in `valid` of the first value */
} Numbers;

typedef struct {
  i64 rows;
  const i32 *offsets;
  const u8 *text, *valid;
  i64 first, columns, most; /* `most`: columns for numbers that are stored */
  const Numbers *known;
  i32 *codes;   /* out: the template of each row, -1 for null; that of code c is word c of column 1 */
  i64 *numbers; /* out: column by column, zeros before */
  u8 *there;    /* out: bitmaps of (rows + 7) / 8 bytes, column by column, zeros before */
} Rows;

/* `place`: the argument of printf, from 1; 0 if the number is text. */
typedef struct {
  i64 first;
  u32 equal; /* a bit for each known column that has all values of the slot */
  u8 varies, place;
} Number;

/* `word`: of the format of printf, 0 if it is not known yet or not the same for all rows. */
typedef struct {
  u32 from, count; /* its slots */
  u32 word, text;  /* text: whether a slot that varies is text */
} Template;

static inline int bit_at(const u8 *bits, i64 at) { return !bits || (bits[at >> 3] >> (at & 7) & 1); }

static u32 equal_columns(const Rows *r, i64 row, i64 value, u32 among) {
  u32 found = 0;
  for (; among; among &= among - 1) {
    const Numbers *known = &r->known[__builtin_ctz(among)];
    i64 has = bit_at(known->valid, known->first + row) ? known->values[row] : 0;
    if (has == value) found |= among & -among;
  }
  return found;
}

static inline void put_number(Bytes *numbers, i64 value) {
  memcpy(numbers->bytes + numbers->used, &value, 8);
  numbers->used += 8;
}

/* Behind the digits of a number at `p`; its slots are added to `to`. A number that printing does not give
   again is no slot. Zeros behind the point are text, up to the last one. */
static const u8 *cut_number(const u8 *p, const u8 *end, Bytes *to, Bytes *numbers) {
  const u8 *at = p + (*p == '-'), *whole = at, *zeros, *fraction;
  u64 value = 0, decimals = 0;
  while (at < end && is_digit(*at)) value = value * 10 + (u64)(*at++ - '0');
  int fits = at > whole && at - whole <= 18 && (*whole != '0' || at == whole + 1);
  int point = at < end && *at == '.';
  zeros = fraction = at + point;
  if (point) {
    for (at = zeros; at < end && is_digit(*at);) decimals = decimals * 10 + (u64)(*at++ - '0');
    while (fraction + 1 < at && *fraction == '0') fraction++;
    fits = fits && at > fraction && at - fraction <= 18;
  }
  if (at < end && (*at | 32) == 'e') {
    fits = 0;
    for (at++; at < end && (is_digit(*at) || *at == '+' || *at == '-');) at++;
  }
  if (!fits || (*p == '-' && !value)) {
    if (at == p) at++;
    memcpy(to->bytes + to->used, p, (size_t)(at - p));
    to->used += (size_t)(at - p);
    return at;
  }
  memcpy(to->bytes + to->used, "%d.", 3);
  to->used += 2 + (size_t)point;
  put_number(numbers, *p == '-' ? -(i64)value : (i64)value);
  if (point) {
    memcpy(to->bytes + to->used, zeros, (size_t)(fraction - zeros));
    memcpy(to->bytes + to->used + (fraction - zeros), "%d", 2);
    to->used += (size_t)(fraction - zeros) + 2;
    put_number(numbers, (i64)decimals);
  }
  return at;
}

/* The template of a text in `scratch`, its numbers behind `numbers`; 0 with an error. */
static int cut(Scanner *s, const u8 *p, const u8 *end, Bytes *numbers) {
  Bytes *to = &s->scratch;
  to->used = 0;
  if (!reserve(s, to, 2 * (size_t)(end - p)) || !reserve(s, numbers, 8 * (size_t)(end - p))) return 0;
  for (int inside = 0; p < end;) {
    u8 c = *p;
    if (!inside && (is_digit(c) || c == '-')) {
      p = cut_number(p, end, to, numbers);
      continue;
    }
#ifdef SIMD
    if (inside && end - p >= 16) {
      __m128i v = _mm_loadu_si128((const __m128i *)p);
      __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
      __m128i percent = _mm_cmpeq_epi8(v, _mm_set1_epi8('%'));
      unsigned found = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), percent));
      int plain = found ? __builtin_ctz(found) : 16;
      _mm_storeu_si128((__m128i *)(to->bytes + to->used), v);
      to->used += (size_t)plain;
      p += plain;
      if (!found) continue;
      c = *p;
    }
#endif
    to->bytes[to->used++] = *p++;
    if (c == '"') inside = !inside;
    else if (c == '%') to->bytes[to->used++] = '%';
    else if (c == '\\' && inside && p < end && *p != '%') to->bytes[to->used++] = *p++;
  }
  memset(to->bytes + to->used, 0, 16);
  return 1;
}

/* Decides what prints the slots of a template; answers how many columns it stores. */
static i64 place_slots(const Rows *r, Template *t, Number *slots) {
  i64 stored = 0;
  u32 used = 0;
  for (Number *n = slots + t->from; n < slots + t->from + t->count; n++) {
    u32 free = n->equal & ~used;
    if (!n->varies) continue;
    if (free) n->place = (u8)(__builtin_ctz(free) + 1);
    else if (stored < r->most) n->place = (u8)(r->columns + ++stored);
    else t->text = 1;
    used |= free & -free;
  }
  return stored;
}

static u8 *print(u8 *to, i64 value) {
  u8 digits[20];
  int count = 0;
  u64 left = value < 0 ? 0 - (u64)value : (u64)value;
  do digits[count++] = (u8)('0' + left % 10);
  while (left /= 10);
  if (value < 0) *to++ = '-';
  while (count) *to++ = digits[--count];
  return to;
}

/* The format of a row with these numbers; 0 with an error. */
static u32 format_of(Scanner *s, const Template *t, u32 word, const Number *slots, const u8 *numbers) {
  const Words *w = &s->words[0];
  const u8 *p = w->bytes.bytes + w->offsets[word - 1], *end = w->bytes.bytes + w->offsets[word];
  s->scratch.used = 0;
  if (!reserve(s, &s->scratch, (size_t)(end - p) + 20 * (size_t)t->count)) return 0;
  u8 *to = s->scratch.bytes;
  for (const Number *n = slots + t->from; p < end;) {
    if (*p == '%' && p[1] == 'd') {
      i64 value = (i64)eight(numbers);
      if (n->place) {
        *to++ = '%';
        value = n->place;
      }
      to = print(to, value);
      if (n->place) to = (u8 *)memcpy(to, "$d", 2) + 2;
      numbers += 8;
      n++;
      p += 2;
      continue;
    }
    if (*p == '%') *to++ = *p++;
    *to++ = *p++;
  }
  memset(to, 0, 16);
  return word_of(s, &s->words[1], s->scratch.bytes, (size_t)(to - s->scratch.bytes));
}

/* The templates and numbers of all rows: the codes are those of the templates that `cut` finds. */
static int cut_rows(Scanner *s, const Rows *r, Bytes *numbers, Bytes *templates, Bytes *slots) {
  for (i64 row = 0; row < r->rows; row++) {
    r->codes[row] = -1;
    if (!bit_at(r->valid, r->first + row)) continue;
    size_t from = numbers->used;
    if (!cut(s, r->text + r->offsets[row], r->text + r->offsets[row + 1], numbers)) return 0;
    u32 count = (u32)((numbers->used - from) / 8), known = s->words[0].count;
    u32 word = word_of(s, &s->words[0], s->scratch.bytes, s->scratch.used);
    if (!word) return 0;
    if (word > known) {
      Template new = {.from = (u32)(slots->used / sizeof(Number)), .count = count};
      if (!reserve(s, templates, sizeof new) || !reserve(s, slots, count * sizeof(Number))) return 0;
      memcpy(templates->bytes + templates->used, &new, sizeof new);
      templates->used += sizeof new;
      for (u32 i = 0; i < count; i++) {
        i64 value = (i64)eight(numbers->bytes + from + 8 * i);
        Number n = {value, equal_columns(r, row, value, (1u << r->columns) - 1), 0, 0};
        memcpy(slots->bytes + slots->used, &n, sizeof n);
        slots->used += sizeof n;
      }
    }
    r->codes[row] = (i32)(word - 1);
    Number *n = (Number *)slots->bytes + ((Template *)templates->bytes)[word - 1].from;
    for (u32 i = 0; i < count; i++, n++) {
      i64 value = (i64)eight(numbers->bytes + from + 8 * i);
      n->varies |= value != n->first;
      if (n->equal) n->equal = equal_columns(r, row, value, n->equal);
    }
  }
  return 1;
}

/* Answers the number of columns with stored numbers; -1 if there are too many templates or memory is short. */
EXPORT i64 tw_split(Scanner *s, const Rows *r) {
  Bytes numbers = {0}, templates = {0}, slots = {0};
  i64 stored = 0, failed = -1;
  if (!cut_rows(s, r, &numbers, &templates, &slots)) goto end;
  Template *all = (Template *)templates.bytes;
  for (u32 i = 0; i < s->words[0].count; i++) {
    i64 mine = place_slots(r, &all[i], (Number *)slots.bytes);
    stored = mine > stored ? mine : stored;
  }
  const u8 *at = numbers.bytes;
  for (i64 row = 0; row < r->rows; row++) {
    if (r->codes[row] < 0) continue;
    u32 base = (u32)r->codes[row] + 1;
    Template *t = &all[base - 1];
    u32 word = t->word ? t->word : format_of(s, t, base, (Number *)slots.bytes, at);
    if (!word) goto end;
    if (!t->text) t->word = word;
    r->codes[row] = (i32)(word - 1);
    for (Number *n = (Number *)slots.bytes + t->from, *last = n + t->count; n < last; n++, at += 8) {
      i64 column = n->place - r->columns - 1;
      if (column < 0) continue;
      r->numbers[column * r->rows + row] = (i64)eight(at);
      r->there[column * ((r->rows + 7) / 8) + (row >> 3)] |= (u8)(1 << (row & 7));
    }
  }
  failed = 0;
end:
  free(numbers.bytes);
  free(templates.bytes);
  free(slots.bytes);
  return failed ? -1 : stored;
}

/* ---- Nesting ------------------------------------------------------------------------------------------- */

/* The parent of each interval, see `enclosing` in ingest/tables/model.py. What lies between an interval and its
   parent has ended by its start, so that nothing is passed twice. */
EXPORT void tw_enclosing(i64 lanes, const i64 *bounds, const i64 *starts, const i64 *ends, i32 *parent) {
  for (i64 lane = 0; lane < lanes; lane++) {
    for (i64 i = bounds[lane]; i < bounds[lane + 1]; i++) {
      i64 at = i - 1;
      while (at >= bounds[lane] && ends[at] <= starts[i]) at = parent[at];
      parent[i] = at >= bounds[lane] ? (i32)at : -1;
    }
  }
}

/* The last descendant of each interval, or itself. */
EXPORT void tw_last_descendants(i64 count, const i32 *parent, i32 *last) {
  for (i64 i = 0; i < count; i++) last[i] = (i32)i;
  for (i64 i = count - 1; i >= 0; i--)
    if (parent[i] >= 0 && last[i] > last[parent[i]]) last[parent[i]] = last[i];
}

/* ---- Interface ----------------------------------------------------------------------------------------- */

EXPORT int tw_abi(void) { return ABI; }
EXPORT const char *tw_source_hash(void) { return SOURCE_HASH; }
EXPORT const char *tw_column_names(void) { return column_names; }

/* 0 where memory is short. `allocations`: how many are to succeed, -1 for as many as memory allows. */
EXPORT Scanner *tw_new(u64 seed, u64 other_seed, const Limits *limits, i64 allocations) {
  Scanner *s = calloc(1, sizeof *s);
  if (!s) return 0;
  s->limits = *limits;
  s->seed[0] = seed;
  s->seed[1] = other_seed;
  s->allocations_left = allocations;
  keys_open(s);
  return s;
}

EXPORT void tw_free(Scanner *s) {
  if (s->batch) batch_free(s->batch);
  for (int i = 0; i < CODES; i++) words_free(&s->words[i]);
  words_free(&s->strings);
  free(s->pending.bytes);
  free(s->scratch.bytes);
  free(s->kinds);
  free(s);
}

/* Adds text and reads elements; answers MORE to NO_MEMORY. After BATCH_ENDED the batch is to be taken and
   `tw_feed` called without text. An element that is not whole is read again only when it has doubled, unless
   `length` is 0: so text costs no more than twice its length. */
EXPORT int tw_feed(Scanner *s, const u8 *text, i64 length, i64 longest) {
  s->error = NONE;
  if ((length || s->at || !s->pending.bytes) && !add_text(s, text, (size_t)length)) return NO_MEMORY;
  if (length && s->pending.used < 2 * s->tried && (i64)s->pending.used <= longest) return MORE;
  s->tried = 0;
  int state = read_elements(s);
  size_t left = s->pending.used - s->at;
  if (state == MORE && left > 1 << 20) s->tried = left;
  return state == MORE && (i64)left > longest ? TOO_LONG : state;
}

/* The array was closed: the text from `]` on is forgotten and elements of another one may follow. */
EXPORT void tw_next_array(Scanner *s) {
  s->dropped += (i64)s->pending.used;
  s->pending.used = s->at = s->tried = 0;
  s->place = BEFORE_FIRST;
}

EXPORT i64 tw_offset(const Scanner *s) { return s->dropped + (i64)s->at; }
EXPORT i64 tw_rows(const Scanner *s) { return s->rows + (s->batch ? s->row : 0); }

/* The text that was fed and not read. */
EXPORT const u8 *tw_rest(const Scanner *s, i64 *length) {
  *length = (i64)(s->pending.used - s->at);
  return s->pending.bytes + s->at;
}

EXPORT void tw_drop_rest(Scanner *s) {
  s->pending.used = s->at;
  s->tried = 0;
}

/* The rows since the last batch, 0 if there are none; the caller owns it. */
EXPORT Batch *tw_take(Scanner *s) {
  Batch *b = s->batch;
  if (!b || !s->row) return 0;
  b->rows = s->row;
  for (int c = 0; c < CODES; c++) {
    i32 *codes = b->values[c];
    for (i64 r = 0; codes && r < b->rows; r++) codes[r]--;
  }
  b->strings_from = s->strings_full ? -1 : s->strings_taken;
  s->strings_taken = s->strings.count;
  s->rows += s->row;
  s->row = 0;
  s->batch = 0;
  return b;
}

EXPORT void tw_batch_free(Batch *b) { batch_free(b); }

typedef struct {
  i64 count;
  const i32 *offsets;
  const u8 *bytes;
} View;

/* The words of a column's dictionary; column -1: the strings to search. Valid until the next feed. */
EXPORT void tw_words(const Scanner *s, int column, View *view) {
  const Words *w = column < 0 ? &s->strings : &s->words[column];
  *view = (View){w->count, w->offsets, w->bytes.bytes};
}
