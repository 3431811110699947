/* fencepost-box run WORD...     one run; the words are the site's and the order's, the answer is one line
 * fencepost-box agent WORD...   orders come as packets of words on the descriptor client=N, each with the program's stdin,
 *                               stdout and stderr; answers go back as lines. Ends when it is closed.
 * fencepost-box probe WORD...   what this machine allows, as one line
 * fencepost-box folder WORD...  the workspace, apart from its place on the machine, as a descriptor on client=N
 * fencepost-box sweep           remove the cgroups of processes that are gone
 */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct site site = {.outer_uid = 65533, .fds = {0, 1, 2}, .parent_pipe = -1, .client = 3};

/* Words of the site are taken out; those of the order are joined, each with its zero byte. */
static const char *sort_words(int count, char **given, char *words, size_t *length) {
  *length = 0;
  for (int i = 0; i < count; i++) {
    bool mine;
    const char *wrong = word_of_site(&site, given[i], &mine);
    if (wrong) return wrong;
    size_t size = strlen(given[i]) + 1;
    if (mine) continue;
    if (*length + size > ORDER_BYTES_MAX) return "too long";
    memcpy(words + *length, given[i], size);
    *length += size;
  }
  return NULL;
}

static size_t hello(char *line, size_t size, const struct holder *holder, const struct cgroup *group, const char *wrong) {
  static const char *KINDS[] = {"none", "v1", "v2", "hybrid"};
  bool hybrid = group->kind == CGROUP_V1 && group->unified;
  static const char *ANSWERS[] = {"false", "true"};
  int length = snprintf(line, size,
                        "{\"ready\":%s,\"cgroup\":\"%s\",\"user_namespace\":%s,\"proc\":%s,\"root\":%s,"
                        "\"processes_seen\":%s,\"error\":\"%s\"}\n",
                        ANSWERS[!wrong], KINDS[hybrid ? 3 : group->kind], ANSWERS[holder->user_namespace], ANSWERS[holder->proc],
                        ANSWERS[!geteuid()], ANSWERS[tree_is_seen(holder->pid)], wrong ? wrong : "");
  return (size_t)length;
}

static void close_all(const int *fds, int count) {
  for (int i = 0; i < count; i++) close(fds[i]);
}

static bool answer_client(const struct order *order, const struct outcome *outcome) {
  static char line[4096];
  return wire_send(site.client, line, outcome_line(line, sizeof line, order, outcome), NULL, 0) > 0;
}

static bool answer_stdout(const struct order *order, const struct outcome *outcome) {
  static char line[4096];
  size_t said = outcome_line(line, sizeof line, order, outcome);
  return write(STDOUT_FILENO, line, said) == (ssize_t)said;
}

static bool refuse(const struct order *order, const char *wrong, answer_function answer) {
  struct outcome outcome = {.verdict = "SE"};
  snprintf(outcome.error, sizeof outcome.error, "order: %s", wrong);
  return answer(order, &outcome);
}

/* A holder that is lost, or a cgroup that stays, does not get better: the judge starts a new agent. */
static int serve(struct holder *holder, struct cgroup *group) {
  static char words[ORDER_BYTES_MAX], copy[ORDER_BYTES_MAX], line[4096];
  static struct order order;
  size_t said = hello(line, sizeof line, holder, group, NULL);
  wire_send(site.client, line, said, NULL, 0);
  for (bool fit = true; fit;) {
    int fds[8], fd_count = 8;
    ssize_t length = wire_receive(site.client, words, sizeof words, fds, &fd_count, 0);
    if (length <= 0) return 0;
    memcpy(copy, words, (size_t)length);
    const char *wrong = order_read(&order, copy, (size_t)length);
    if (fd_count != 3) wrong = "descriptors";
    fit = wrong ? refuse(&order, wrong, answer_client)
                : supervise(holder, group, &order, words, (size_t)length, fds, site.client, answer_client);
    close_all(fds, fd_count);
  }
  return 1;
}

/* The order is read first: what is made for one run is made for this one. */
static int run_once(char *words, size_t length) {
  static char copy[ORDER_BYTES_MAX];
  static struct order order;
  struct holder holder = {.once = true, .socket = -1, .orders = -1};
  struct cgroup group = {0};
  memcpy(copy, words, length);
  const char *wrong = order_read(&order, copy, length);
  if (wrong) return refuse(&order, wrong, answer_stdout) ? 0 : 1;
  wrong = single_begin(&holder, &site, &order);
  if (!wrong && !site.no_cgroup) cgroup_find(&group, true);
  if (!wrong) wrong = cgroup_begin(&group, &order);
  /* A process that cannot take it has reported why. */
  if (!wrong) wire_send(holder.orders, "g", 1, group.join, group.join_count);
  bool fit = !wrong && supervise(&holder, &group, &order, words, length, site.fds, site.parent_pipe, answer_stdout);
  if (wrong) {
    struct outcome outcome = {.verdict = "SE"};
    snprintf(outcome.error, sizeof outcome.error, "%s: %s", wrong, strerror(errno));
    answer_stdout(&order, &outcome);
    /* What init waits for does not come: it ends, as the holder does when the root is there. */
    if (holder.orders >= 0) close(holder.orders);
    holder.orders = -1;
    holder.init_ends = true;
  }
  cgroup_leave(&group);
  holder_bury(&holder);
  return fit ? 0 : 1;
}

static int send_folder(void) {
  int tree = site.workspace ? root_apart(site.workspace) : -1;
  return tree >= 0 && wire_send(site.client, "f", 1, &tree, 1) == 1 ? 0 : 1;
}

int main(int argc, char **argv) {
  static char words[ORDER_BYTES_MAX], line[4096];
  struct holder holder = {0};
  struct cgroup group = {0};
  size_t length;
  const char *verb = argc > 1 ? argv[1] : "";
  prctl(PR_SET_DUMPABLE, 1);
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  if (!strcmp(verb, "sweep")) {
    cgroup_sweep();
    return 0;
  }
  bool once = !strcmp(verb, "run"), agent = !strcmp(verb, "agent"), probe = !strcmp(verb, "probe"), folder = !strcmp(verb, "folder");
  const char *wrong = once || agent || probe || folder ? sort_words(argc - 2, argv + 2, words, &length) : "verb";
  if (wrong) {
    int said = snprintf(line, sizeof line, "fencepost-box: %s\n", wrong);
    return write(STDERR_FILENO, line, (size_t)said) < 0 ? 1 : 2;
  }
  if (once) return run_once(words, length);
  if (folder) return send_folder();
  wrong = holder_begin(&holder, &site);
  if (!wrong && !site.no_cgroup) cgroup_find(&group, false);
  /* What fails here fails again, and is said, when there is an order. */
  if (!wrong && !probe) cgroup_prepare(&group);
  if (!wrong) wrong = holder_await(&holder, &site);
  int code = 0;
  if (wrong || probe) {
    size_t said = hello(line, sizeof line, &holder, &group, wrong);
    if (agent) wire_send(site.client, line, said, NULL, 0);
    else if (write(STDOUT_FILENO, line, said) < 0) code = 1;
    if (wrong) code = 1;
  } else {
    code = serve(&holder, &group);
  }
  /* While it dies, the rest is cleared away. */
  holder_kill(&holder);
  cgroup_leave(&group);
  holder_bury(&holder);
  return code;
}
