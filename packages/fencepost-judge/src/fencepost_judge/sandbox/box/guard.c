/* The last steps before the program runs: descriptors, limits, privileges, system calls. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "fencepost-box knows x86_64 and aarch64"
#endif

/* Headers from before Linux 6.8 lack these. */
#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif

/* Calls above this one did not exist when this was written, so they were not reviewed. */
#define NEWEST_CALL 462

#define NUMBER offsetof(struct seccomp_data, nr)
#define ARGUMENT(i) (offsetof(struct seccomp_data, args) + 8 * (i))
#define LOAD(where) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))

/* A call and what it is answered; DENY does not look at its arguments, and what does has steps of its own. DENY_BUT lets one pass that only
 * this file makes. */
struct rule {
  int call, error;
  const struct sock_filter *steps;
  int step_count;
};
#define DENY(call, error) {SYS_##call, error, NULL, 0}
#define WEIGH(call, steps) {SYS_##call, 0, steps, sizeof steps / sizeof *(steps)}
#define DENY_BUT(call, steps) WEIGH(call, steps)

#define NEW_NAMESPACES                                                                                     \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* A thread and a process are fine; a namespace is not. */
static const struct sock_filter CLONE[] = {
  LOAD(ARGUMENT(0)), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};
/* The last step before the program (hide_cgroups). The kernel refuses it to the program, which has no capability. */
static const struct sock_filter UNSHARE[] = {
  LOAD(ARGUMENT(0)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE_NEWCGROUP, 1, 0), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};
/* A FIFO is fine; a device is not. */
static const struct sock_filter MKNODAT[] = {
  LOAD(ARGUMENT(2)), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, S_IFMT), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, S_IFIFO, 1, 0),
  REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};
/* Typing into a terminal. */
static const struct sock_filter IOCTL[] = {
  LOAD(ARGUMENT(1)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 0, 1), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};
/* One's own limits only: init has the same user id as the program. */
static const struct sock_filter PRLIMIT[] = {
  LOAD(ARGUMENT(0)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};
/* Only to ask for the personality. */
static const struct sock_filter PERSONALITY[] = {
  LOAD(ARGUMENT(0)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
};

static struct rule RULES[] = {
  /* Other processes, and their memory. */
  DENY(ptrace, EPERM), DENY(process_vm_readv, EPERM), DENY(process_vm_writev, EPERM), DENY(kcmp, EPERM),
  DENY(pidfd_getfd, EPERM), DENY(process_madvise, EPERM),
  /* Mounts and namespaces. glibc falls back from clone3, whose flags a filter cannot see. */
  DENY(mount, EPERM), DENY(umount2, EPERM), DENY(pivot_root, EPERM), DENY(chroot, EPERM), DENY(move_mount, EPERM),
  DENY(open_tree, EPERM), DENY(fsopen, EPERM), DENY(fsconfig, EPERM), DENY(fsmount, EPERM), DENY(fspick, EPERM),
  DENY(mount_setattr, EPERM), DENY(statmount, EPERM), DENY(listmount, EPERM), DENY(setns, EPERM), DENY(clone3, ENOSYS),
  /* The kernel's keys, rings, programs and faults: large, and not namespaced. */
  DENY(add_key, EPERM), DENY(request_key, EPERM), DENY(keyctl, EPERM), DENY(io_uring_setup, EPERM),
  DENY(io_uring_enter, EPERM), DENY(io_uring_register, EPERM), DENY(bpf, EPERM), DENY(perf_event_open, EPERM),
  DENY(userfaultfd, EPERM), DENY(init_module, EPERM), DENY(finit_module, EPERM), DENY(delete_module, EPERM),
  DENY(kexec_load, EPERM), DENY(kexec_file_load, EPERM), DENY(reboot, EPERM), DENY(swapon, EPERM), DENY(swapoff, EPERM),
  DENY(acct, EPERM), DENY(quotactl, EPERM), DENY(quotactl_fd, EPERM), DENY(syslog, EPERM), DENY(vhangup, EPERM),
  DENY(settimeofday, EPERM), DENY(clock_settime, EPERM), DENY(clock_adjtime, EPERM), DENY(adjtimex, EPERM),
  DENY(sethostname, EPERM), DENY(setdomainname, EPERM), DENY(name_to_handle_at, EPERM), DENY(open_by_handle_at, EPERM),
  DENY(fanotify_init, EPERM), DENY(lookup_dcookie, EPERM), DENY(memfd_secret, EPERM), DENY(mbind, EPERM),
  DENY(set_mempolicy, EPERM), DENY(migrate_pages, EPERM), DENY(move_pages, EPERM),
  /* What outlives a run or reaches past it: System V objects, queues, every kind of socket but a pair. */
  DENY(shmget, EPERM), DENY(semget, EPERM), DENY(msgget, EPERM), DENY(mq_open, EPERM), DENY(socket, EPERM),
  DENY(connect, EPERM), DENY(bind, EPERM), DENY(listen, EPERM),
#if defined(__x86_64__)
  DENY(iopl, EPERM), DENY(ioperm, EPERM), DENY(modify_ldt, EPERM), DENY(uselib, EPERM), DENY(ustat, EPERM),
  DENY(_sysctl, EPERM), DENY(mknod, EPERM),
#endif
  DENY_BUT(unshare, UNSHARE), WEIGH(clone, CLONE), WEIGH(mknodat, MKNODAT), WEIGH(ioctl, IOCTL), WEIGH(prlimit64, PRLIMIT), WEIGH(personality, PERSONALITY),
};
#define RULE_COUNT ((int)(sizeof RULES / sizeof *RULES))

static struct sock_filter filter_steps[BPF_MAXINSNS / 4];
static unsigned short filter_length;

static int by_call(const void *one, const void *two) {
  return ((const struct rule *)one)->call - ((const struct rule *)two)->call;
}

static void add(struct sock_filter step) {
  if (filter_length == sizeof filter_steps / sizeof *filter_steps) abort();
  filter_steps[filter_length++] = step;
}

/* The rules from..to, sorted: halves, until a few are left that are asked for one by one. The kernel walks the whole filter
 * for each call that there is when it is installed, which is in every run: a chain of them took a sixth of a millisecond. */
static void add_rules(int from, int to) {
  if (to - from > 3) {
    int middle = (from + to) / 2;
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)RULES[middle].call, 0, 1));
    int jump = filter_length;
    add((struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 0));
    add_rules(from, middle);
    filter_steps[jump].k = (unsigned)(filter_length - jump - 1);
    add_rules(middle, to);
    return;
  }
  for (int i = from; i < to; i++) {
    const struct rule *rule = &RULES[i];
    int count = rule->steps ? rule->step_count : 1;
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)rule->call, 0, (unsigned char)count));
    if (!rule->steps) add((struct sock_filter)REFUSE((unsigned)rule->error));
    for (int step = 0; step < rule->step_count; step++) add(rule->steps[step]);
  }
  add((struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
}

/* Once, before the first run: every run has the same. */
void guard_prepare(void) {
  qsort(RULES, (size_t)RULE_COUNT, sizeof *RULES, by_call);
  filter_length = 0;
  add((struct sock_filter)LOAD(offsetof(struct seccomp_data, arch)));
  add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
  add((struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS));
  add((struct sock_filter)LOAD(NUMBER));
  /* The x32 calls of x86_64 have a bit that lies above this too. */
  add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1));
  add((struct sock_filter)REFUSE(ENOSYS));
  add_rules(0, RULE_COUNT);
}

/* The program shares init's memory until it is executed: what went wrong is left there for init to read. */
_Noreturn static void give_up(char *error_message, const char *what) {
  snprintf(error_message, ERROR_MESSAGE_BYTES, "%s: %s", what, strerror(errno));
  _exit(1);
}

static void limit(char *error_message, int what, rlim_t soft, rlim_t hard) {
  struct rlimit bound = {soft, hard};
  if (!syscall(SYS_prlimit64, 0, what, &bound, NULL)) return;
  /* Without privilege a limit can only be lowered: the one we were given is tighter. */
  if (syscall(SYS_prlimit64, 0, what, NULL, &bound)) give_up(error_message, "rlimit");
  bound.rlim_cur = soft < bound.rlim_max ? soft : bound.rlim_max;
  if (syscall(SYS_prlimit64, 0, what, &bound, NULL)) give_up(error_message, "rlimit");
}

static void set_limits(const struct order *order, bool grouped, char *error_message) {
  rlim_t cpu_seconds = (rlim_t)(order->cpu_ms + 999) / 1000;
  limit(error_message, RLIMIT_CPU, cpu_seconds + 1, cpu_seconds + 2);
  limit(error_message, RLIMIT_FSIZE, (rlim_t)order->output_kb * 1024, (rlim_t)order->output_kb * 1024);
  limit(error_message, RLIMIT_STACK, (rlim_t)order->stack_kb * 1024, (rlim_t)order->stack_kb * 1024);
  limit(error_message, RLIMIT_NOFILE, (rlim_t)order->open_files, (rlim_t)order->open_files);
  limit(error_message, RLIMIT_CORE, 0, 0);
  limit(error_message, RLIMIT_MEMLOCK, 0, 0);
  limit(error_message, RLIMIT_NICE, 0, 0);
  limit(error_message, RLIMIT_RTPRIO, 0, 0);
  limit(error_message, RLIMIT_SIGPENDING, 1024, 1024);
  limit(error_message, RLIMIT_MSGQUEUE, 0, 0);
  if (grouped) return;
  /* The holder and init have the same user. Address space is not bounded: a thread's stack, or what a virtual machine reserves,
   * is large and is not memory. */
  limit(error_message, RLIMIT_NPROC, (rlim_t)order->processes + 2, (rlim_t)order->processes + 2);
}

static void filter_calls(struct sock_filter *steps, unsigned short count, char *error_message) {
  struct sock_fprog filter = {count, steps};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) give_up(error_message, "seccomp");
}

static void keep_capabilities(uint32_t kept, char *error_message) {
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct both[2] = {{.effective = kept, .permitted = kept}};
  if (syscall(SYS_capset, &head, both)) give_up(error_message, "capset");
}

/* One capability is kept until the program is in its cgroups: see hide_cgroups. */
static void drop_privileges(char *error_message) {
  for (int cap = 0; !prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); cap++) {}
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (getuid() != INSIDE_ID && (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID) ||
                                setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID)))
    give_up(error_message, "uid");
  keep_capabilities(1u << CAP_SYS_ADMIN, error_message);
  /* Armed after the change of credentials, which clears it. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) give_up(error_message, "privileges");
  filter_calls(filter_steps, filter_length, error_message);
}

/* Memory that belongs to no process is seen by a cgroup only: as if the kernel were older than such files. */
static void refuse_files_in_memory(char *error_message) {
  static struct sock_filter steps[] = {
    LOAD(NUMBER), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1), REFUSE(ENOSYS), ANSWER(SECCOMP_RET_ALLOW),
  };
  filter_calls(steps, sizeof steps / sizeof *steps, error_message);
}

/* /proc/self/cgroup names cgroups from those in which a namespace of them was made: here from those of this run. */
static void hide_cgroups(char *error_message) {
  if (unshare(CLONE_NEWCGROUP)) give_up(error_message, "cgroup namespace");
}

/* Descriptors 0, 1 and 2 may overlap with those they come from: lift all first. */
static void place_files(const int standard[3], char *error_message) {
  int lifted[3];
  for (int i = 0; i < 3; i++)
    if ((lifted[i] = fcntl(standard[i], F_DUPFD_CLOEXEC, 64)) < 0) give_up(error_message, "descriptor");
  for (int i = 0; i < 3; i++)
    if (dup2(lifted[i], i) < 0) give_up(error_message, "descriptor");
  if (syscall(SYS_close_range, 3, ~0U, 0))
    for (int fd = 3; fd < 1024; fd++) close(fd);
}

/* /proc lists the mounts of a process's namespace that lie below its root, with their places outside. So the program keeps its root, whose
 * namespace init keeps, and moves to a namespace where no mount lies below that. */
static bool hide_mounts(int outside) {
  int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  bool moved = root >= 0 && !(outside < 0 ? unshare(CLONE_NEWNS) : (int)syscall(SYS_setns, outside, CLONE_NEWNS));
  if (!moved || syscall(SYS_fchdir, root) || syscall(SYS_chroot, ".")) return false;
  close(root);
  return true;
}

static void become_nobody(struct start *start) {
  char *error_message = start->error_message;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (int number = 1; number < 65; number++) signal(number, SIG_DFL);
  setsid();
  if (start->hide_mounts && !hide_mounts(start->outside)) give_up(error_message, "mounts");
  if (chdir("/box")) give_up(error_message, "chdir");
  drop_privileges(error_message);
}

/* Its threads and children too. */
static void run_on(long core, char *error_message) {
  unsigned long mask[1024 / (8 * sizeof(unsigned long))] = {0};
  size_t bits = 8 * sizeof *mask;
  mask[(size_t)core / bits] = 1UL << ((size_t)core % bits);
  if (syscall(SYS_sched_setaffinity, 0, sizeof mask, mask) < 0) give_up(error_message, "core");
}

_Noreturn static void execute(struct start *start, const int *fds, int fd_count) {
  const struct order *order = start->order;
  for (int i = 3; i < fd_count; i++)
    if (write(fds[i], "0", 1) != 1) give_up(start->error_message, "cgroup");
  if (fd_count > 3 && order->proc) hide_cgroups(start->error_message);
  keep_capabilities(0, start->error_message);
  if (order->core >= 0) run_on(order->core, start->error_message);
  /* Not before: the order was not there yet. The folder is the program's own. */
  if (order->in_out && chdir("/out")) give_up(start->error_message, "chdir");
  place_files(fds, start->error_message);
  bool grouped = fd_count > 3;
  set_limits(order, grouped, start->error_message);
  if (!grouped) refuse_files_in_memory(start->error_message);
  execve(order->args[0], (char *const *)order->args, (char *const *)order->env);
  give_up(start->error_message, "exec");
}

_Noreturn void guard_exec(struct start *start) {
  int fds[8], fd_count = 8;
  char go;
  become_nobody(start);
  if (wire_send(start->control, "r", 1, NULL, 0) != 1) _exit(1);
  if (wire_receive(start->control, &go, 1, fds, &fd_count, 0) != 1) _exit(1);
  execute(start, fds, fd_count);
}

_Noreturn void guard_exec_at_once(struct start *start, const int *fds, int fd_count) {
  become_nobody(start);
  execute(start, fds, fd_count);
}
