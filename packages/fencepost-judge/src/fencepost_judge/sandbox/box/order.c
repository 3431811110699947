/* Reading an order: words "key=value", each ended by a zero byte. Whatever is not understood is refused. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct number { const char *key; size_t offset; long least, most; };
#define FIELD(name, least, most) {#name, offsetof(struct order, name), least, most}
static const struct number NUMBERS[] = {
  FIELD(attempt_id, 0, 0x7fffffffffff),  FIELD(cpu_ms, 1, 3600000),       FIELD(wall_ms, 1, 36000000),
  FIELD(memory_kb, 1024, 1L << 32),      FIELD(output_kb, 0, 1L << 31),   FIELD(stack_kb, 64, 1L << 32),
  FIELD(processes, 1, 32768),            FIELD(open_files, 4, 65536),     FIELD(disk_kb, 64, 1L << 31),
  FIELD(inodes, 16, 1L << 24),           FIELD(out_kb, 0, 1L << 31),      FIELD(out_files, 0, 1L << 20),
  FIELD(core, 0, 1023),
};

static bool read_number(const char *text, long least, long most, long *value) {
  uint64_t number;
  if (!take_number(&text, &number) || *text || number > (uint64_t)most) return false;
  *value = (long)number;
  return *value >= least;
}

/* Below a root of ours, without a way up: what is mounted comes from the judge, never from a submission. */
static bool is_safe_path(const char *path, bool absolute) {
  if (!*path || (path[0] == '/') != absolute || strlen(path) >= NAME_MAX_BYTES) return false;
  for (const char *part = path; *part; part += strcspn(part, "/"), part += *part == '/') {
    size_t length = strcspn(part, "/");
    if ((length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.')) return false;
  }
  return true;
}

static const char *read_bind(struct order *order, char *value) {
  char *colon = strchr(value, ':');
  if (!colon || order->bind_count == BINDS_MAX) return "bind";
  *colon = 0;
  if (!is_safe_path(value, false) || !is_safe_path(colon + 1, true)) return "bind";
  order->binds[order->bind_count++] = (struct bind){value, colon + 1};
  return NULL;
}

static const char *read_word(struct order *order, char *word) {
  char *value = strchr(word, '=');
  if (!value) return "word";
  *value++ = 0;
  for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
    if (!strcmp(word, NUMBERS[i].key)) {
      long *field = (long *)((char *)order + NUMBERS[i].offset);
      return read_number(value, NUMBERS[i].least, NUMBERS[i].most, field) ? NULL : NUMBERS[i].key;
    }
  if (!strcmp(word, "arg")) {
    if (order->arg_count == ARGS_MAX) return "arg";
    order->args[order->arg_count++] = value;
  } else if (!strcmp(word, "env")) {
    if (order->env_count == ENV_MAX || !strchr(value, '=')) return "env";
    order->env[order->env_count++] = value;
  } else if (!strcmp(word, "bind")) {
    return read_bind(order, value);
  } else if (!strcmp(word, "root")) {
    if (order->root_count == ROOTS_MAX || !is_safe_path(value, true)) return "root";
    order->roots[order->root_count++] = value;
  } else if (!strcmp(word, "out_dir")) {
    if (!is_safe_path(value, true)) return "out_dir";
    order->out_dir = value;
  } else if (!strcmp(word, "out_from")) {
    if (!is_safe_path(value, false)) return "out_from";
    order->out_from = value;
  } else if (!strcmp(word, "in_out")) {
    order->in_out = !strcmp(value, "1");
  } else if (!strcmp(word, "proc")) {
    order->proc = !strcmp(value, "1");
  } else if (!strcmp(word, "job_id")) {
    if (strlen(value) > 128) return "job_id";
    order->job_id = value;
  } else {
    return "unknown word";
  }
  return NULL;
}

/* Answers what is wrong, or NULL. The order points into the words, which are changed. */
const char *order_read(struct order *order, char *words, size_t length) {
  *order = (struct order){.job_id = "", .cpu_ms = 1000, .wall_ms = 10000, .memory_kb = 262144, .output_kb = 65536,
                          .stack_kb = 262144, .processes = 64, .open_files = 64, .disk_kb = 65536, .inodes = 4096,
                          .out_kb = 65536, .out_files = 512, .core = -1};
  if (!length || words[length - 1]) return "words";
  for (char *word = words; word < words + length;) {
    char *next = word + strlen(word) + 1;
    const char *wrong = read_word(order, word);
    if (wrong) return wrong;
    word = next;
  }
  if (!order->arg_count || order->args[0][0] != '/') return "arg";
  return NULL;
}

const char *word_of_site(struct site *site, char *word, bool *mine) {
  long number;
  *mine = true;
  if (!strncmp(word, "site_root=", 10)) {
    if (site->root_count == ROOTS_MAX || !is_safe_path(word + 10, true)) return "site_root";
    site->roots[site->root_count++] = word + 10;
  } else if (!strncmp(word, "workspace=", 10)) {
    if (!is_safe_path(word + 10, true)) return "workspace";
    site->workspace = word + 10;
  } else if (!strncmp(word, "outer_uid=", 10)) {
    if (!read_number(word + 10, 1, 0x7fffffff, &number)) return "outer_uid";
    site->outer_uid = (uid_t)number;
  } else if (!strncmp(word, "parent_pipe=", 12)) {
    if (!read_number(word + 12, 0, 1 << 20, &number)) return "parent_pipe";
    site->parent_pipe = (int)number;
  } else if (!strncmp(word, "client=", 7)) {
    if (!read_number(word + 7, 3, 1 << 20, &number)) return "client";
    site->client = (int)number;
  } else if (!strncmp(word, "fd", 2) && word[2] >= '0' && word[2] <= '2' && word[3] == '=') {
    if (!read_number(word + 4, 0, 1 << 20, &number)) return "fd";
    site->fds[word[2] - '0'] = (int)number;
  } else if (!strcmp(word, "cgroup=none")) {
    site->no_cgroup = true;
  } else {
    *mine = false;
  }
  return NULL;
}
