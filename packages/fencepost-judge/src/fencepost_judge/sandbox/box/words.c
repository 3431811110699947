/* Strings, numbers and lines: the rest of what a C library would provide. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A compiler that knows these loops would make of each a call of itself. */
#define NO_PATTERN __asm__ volatile("" ::: "memory")

void *memcpy(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) {
    ((char *)to)[i] = ((const char *)from)[i];
    NO_PATTERN;
  }
  return to;
}
void *memset(void *to, int byte, size_t size) {
  for (size_t i = 0; i < size; i++) {
    ((char *)to)[i] = (char)byte;
    NO_PATTERN;
  }
  return to;
}
size_t strlen(const char *text) {
  size_t length = 0;
  while (text[length]) {
    length++;
    NO_PATTERN;
  }
  return length;
}
int strncmp(const char *one, const char *two, size_t size) {
  for (; size; one++, two++, size--)
    if (*one != *two || !*one) return (unsigned char)*one - (unsigned char)*two;
  return 0;
}
int strcmp(const char *one, const char *two) { return strncmp(one, two, SIZE_MAX); }
char *strchr(const char *text, int c) {
  for (; *text != (char)c; text++)
    if (!*text) return NULL;
  return (char *)text;
}
char *strrchr(const char *text, int c) {
  const char *found = NULL;
  for (; *text; text++)
    if (*text == (char)c) found = text;
  return (char *)found;
}
char *strstr(const char *text, const char *part) {
  size_t length = strlen(part);
  for (; strncmp(text, part, length); text++)
    if (!*text) return NULL;
  return (char *)text;
}
size_t strcspn(const char *text, const char *set) {
  size_t length = 0;
  while (text[length] && !strchr(set, text[length])) length++;
  return length;
}

/* Few, and most of them in order. */
void qsort(void *given, size_t count, size_t size, int (*compare)(const void *, const void *)) {
  char *items = given, kept[64];
  if (size > sizeof kept) abort();
  for (size_t i = 1; i < count; i++) {
    size_t place = i;
    memcpy(kept, items + i * size, size);
    for (; place && compare(items + (place - 1) * size, kept) > 0; place--)
      memcpy(items + place * size, items + (place - 1) * size, size);
    memcpy(items + place * size, kept, size);
  }
}

/* ---- reading */
bool take_number(const char **at, uint64_t *number) {
  const char *text = *at;
  while (*text == ' ' || *text == '\n' || *text == '\t') text++;
  if (*text < '0' || *text > '9') return false;
  for (*number = 0; *text >= '0' && *text <= '9'; text++)
    if (__builtin_mul_overflow(*number, 10u, number) || __builtin_add_overflow(*number, (uint64_t)(*text - '0'), number)) return false;
  *at = text;
  return true;
}

bool take_word(const char **at, char *word, size_t size) {
  const char *text = *at;
  while (*text == ' ' || *text == '\n' || *text == '\t') text++;
  size_t length = strcspn(text, " \n\t");
  *at = text + length;
  if (size) snprintf(word, size < length + 1 ? size : length + 1, "%s", text);
  return length > 0;
}

bool lines_open(struct lines *lines, const char *path) {
  lines->at = lines->end = 0;
  lines->fd = open(path, O_RDONLY | O_CLOEXEC);
  return lines->fd >= 0;
}

/* The next byte, or -1. */
static int next_byte(struct lines *lines) {
  if (lines->at == lines->end) {
    ssize_t got = read(lines->fd, lines->room, sizeof lines->room);
    if (got <= 0) return -1;
    lines->at = 0;
    lines->end = (size_t)got;
  }
  return (unsigned char)lines->room[lines->at++];
}

bool lines_next(struct lines *lines, char *line, size_t size) {
  size_t length = 0;
  int byte;
  while ((byte = next_byte(lines)) >= 0 && byte != '\n')
    if (length + 1 < size) line[length++] = (char)byte;
  line[length] = 0;
  return byte >= 0 || length;
}

bool lines_number(struct lines *lines, int *number) {
  int byte;
  while ((byte = next_byte(lines)) >= 0 && (byte < '0' || byte > '9')) {}
  for (*number = 0; byte >= '0' && byte <= '9'; byte = next_byte(lines)) *number = *number * 10 + byte - '0';
  return *number > 0;
}

void lines_close(struct lines *lines) {
  if (lines->fd >= 0) close(lines->fd);
}

/* ---- writing */
struct page { char *text; size_t size, length; };

static void put(struct page *page, char c) {
  if (page->length + 1 < page->size) page->text[page->length] = c;
  page->length++;
}

static void put_number(struct page *page, uint64_t number, unsigned base, int width) {
  char digits[24];
  int count = 0;
  do digits[count++] = "0123456789abcdef"[number % base];
  while (number /= base);
  while (width-- > count) put(page, '0');
  while (count) put(page, digits[--count]);
}

/* What is written here with, and no more: %s %d %u %x, with l, ll and zeros in front. */
int vsnprintf(char *text, size_t size, const char *form, va_list given) {
  struct page page = {text, size, 0};
  for (; *form; form++) {
    if (*form != '%') {
      put(&page, *form);
      continue;
    }
    int width = 0, longs = 0;
    for (form++; *form >= '0' && *form <= '9'; form++) width = width * 10 + *form - '0';
    for (; *form == 'l'; form++) longs++;
    if (*form == 's') {
      for (const char *word = va_arg(given, const char *); *word; word++) put(&page, *word);
    } else if (*form == 'd') {
      int64_t number = longs ? va_arg(given, int64_t) : va_arg(given, int);
      if (number < 0) put(&page, '-');
      put_number(&page, number < 0 ? -(uint64_t)number : (uint64_t)number, 10, width);
    } else if (*form == 'u' || *form == 'x') {
      put_number(&page, longs ? va_arg(given, uint64_t) : va_arg(given, unsigned), *form == 'u' ? 10 : 16, width);
    } else {
      abort();
    }
  }
  if (size) text[page.length < size ? page.length : size - 1] = 0;
  return (int)page.length;
}

int snprintf(char *text, size_t size, const char *form, ...) {
  va_list given;
  va_start(given, form);
  int length = vsnprintf(text, size, form, given);
  va_end(given);
  return length;
}

char *strerror(int error) {
  static const struct { int error; const char *text; } KNOWN[] = {
    {EPERM, "Operation not permitted"}, {ENOENT, "No such file or directory"}, {EIO, "Input/output error"},
    {EBADF, "Bad file descriptor"}, {EAGAIN, "Resource temporarily unavailable"}, {ENOMEM, "Cannot allocate memory"},
    {EACCES, "Permission denied"}, {EBUSY, "Device or resource busy"}, {EEXIST, "File exists"}, {ENOTDIR, "Not a directory"},
    {EISDIR, "Is a directory"}, {EINVAL, "Invalid argument"}, {ENFILE, "Too many open files in system"},
    {EMFILE, "Too many open files"}, {ENOSPC, "No space left on device"}, {EROFS, "Read-only file system"},
    {ELOOP, "Too many levels of symbolic links"}, {ENOSYS, "Function not implemented"}, {ENOEXEC, "Exec format error"},
    {E2BIG, "Argument list too long"}, {EXDEV, "Invalid cross-device link"}, {EUSERS, "Too many users"},
    {ENAMETOOLONG, "File name too long"}, {ETXTBSY, "Text file busy"}, {EMSGSIZE, "Message too long"},
    {EOPNOTSUPP, "Operation not supported"}, {ESRCH, "No such process"}, {ENODEV, "No such device"},
  };
  static char number[24];
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
    if (KNOWN[i].error == error) return (char *)KNOWN[i].text;
  snprintf(number, sizeof number, "error %d", error);
  return number;
}
