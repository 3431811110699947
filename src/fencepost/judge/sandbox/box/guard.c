/* The last steps before the stranger: descriptors, limits, privileges, system calls. */
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

/* Calls above this one did not exist when this was written: nobody has judged them. */
#define NEWEST_CALL 462

#define NUMBER offsetof(struct seccomp_data, nr)
#define ARGUMENT(i) (offsetof(struct seccomp_data, args) + 8 * (i))
#define LOAD(where) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))
/* If the call is this one, run the next instruction; otherwise step over it. */
#define DENY(call, error) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), REFUSE(error)

#define NEW_NAMESPACES                                                                                     \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static const struct sock_filter FILTER[] = {
  LOAD(offsetof(struct seccomp_data, arch)),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0), ANSWER(SECCOMP_RET_KILL_PROCESS),
  LOAD(NUMBER),
  /* The x32 calls of x86_64 have a bit that lies above this too. */
  BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1), REFUSE(ENOSYS),
  /* Other processes, and their memory. */
  DENY(ptrace, EPERM), DENY(process_vm_readv, EPERM), DENY(process_vm_writev, EPERM), DENY(kcmp, EPERM),
  DENY(pidfd_getfd, EPERM), DENY(process_madvise, EPERM),
  /* Mounts and namespaces. glibc falls back from clone3, whose flags a filter cannot see. */
  DENY(mount, EPERM), DENY(umount2, EPERM), DENY(pivot_root, EPERM), DENY(chroot, EPERM), DENY(move_mount, EPERM),
  DENY(open_tree, EPERM), DENY(fsopen, EPERM), DENY(fsconfig, EPERM), DENY(fsmount, EPERM), DENY(fspick, EPERM),
  DENY(mount_setattr, EPERM), DENY(unshare, EPERM), DENY(setns, EPERM), DENY(clone3, ENOSYS),
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
  /* A thread and a process are fine; a namespace is not. */
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4), LOAD(ARGUMENT(0)),
  BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
  /* A FIFO is fine; a device is not. */
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mknodat, 0, 5), LOAD(ARGUMENT(2)),
  BPF_STMT(BPF_ALU | BPF_AND | BPF_K, S_IFMT), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, S_IFIFO, 1, 0), REFUSE(EPERM),
  ANSWER(SECCOMP_RET_ALLOW),
  /* Typing into a terminal. */
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4), LOAD(ARGUMENT(1)),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 0, 1), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
  /* One's own limits only: init has the same user id as the program. */
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 4), LOAD(ARGUMENT(0)),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
  /* Only to ask for the personality. */
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 0, 4), LOAD(ARGUMENT(0)),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0), REFUSE(EPERM), ANSWER(SECCOMP_RET_ALLOW),
  ANSWER(SECCOMP_RET_ALLOW),
};

_Noreturn static void complain(int complaint, const char *what) {
  char text[120];
  int length = snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
  if (write(complaint, text, (size_t)length) < 0) _exit(2);
  _exit(1);
}

static void limit(int complaint, int what, rlim_t soft, rlim_t hard) {
  struct rlimit bound = {soft, hard};
  if (!setrlimit(what, &bound)) return;
  /* Without privilege a limit can only be lowered: the one we were given is tighter. */
  if (getrlimit(what, &bound)) complain(complaint, "rlimit");
  bound.rlim_cur = soft < bound.rlim_max ? soft : bound.rlim_max;
  if (setrlimit(what, &bound)) complain(complaint, "rlimit");
}

static void set_limits(const struct order *order, bool grouped, int complaint) {
  rlim_t cpu_seconds = (rlim_t)(order->cpu_ms + 999) / 1000;
  limit(complaint, RLIMIT_CPU, cpu_seconds + 1, cpu_seconds + 2);
  limit(complaint, RLIMIT_FSIZE, (rlim_t)order->output_kb * 1024, (rlim_t)order->output_kb * 1024);
  limit(complaint, RLIMIT_STACK, (rlim_t)order->stack_kb * 1024, (rlim_t)order->stack_kb * 1024);
  limit(complaint, RLIMIT_NOFILE, (rlim_t)order->open_files, (rlim_t)order->open_files);
  limit(complaint, RLIMIT_CORE, 0, 0);
  limit(complaint, RLIMIT_MEMLOCK, 0, 0);
  limit(complaint, RLIMIT_NICE, 0, 0);
  limit(complaint, RLIMIT_RTPRIO, 0, 0);
  limit(complaint, RLIMIT_SIGPENDING, 1024, 1024);
  limit(complaint, RLIMIT_MSGQUEUE, 0, 0);
  if (grouped) return;
  limit(complaint, RLIMIT_NPROC, (rlim_t)order->processes, (rlim_t)order->processes);
  /* The machine's protection, not the verdict's: that comes from the resident size. */
  limit(complaint, RLIMIT_AS, (rlim_t)order->memory_kb * 4096 + (1ul << 31), (rlim_t)order->memory_kb * 4096 + (1ul << 31));
}

static void drop_privileges(int complaint) {
  for (int cap = 0; cap <= 63; cap++) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (getuid() != INSIDE_ID && (setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID) || setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID)))
    complain(complaint, "uid");
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {{0}};
  if (syscall(SYS_capset, &head, none)) complain(complaint, "capset");
  /* Armed after the change of credentials, which clears it. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) complain(complaint, "privileges");
  struct sock_fprog filter = {sizeof FILTER / sizeof *FILTER, (struct sock_filter *)FILTER};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) complain(complaint, "seccomp");
}

/* Descriptors 0, 1 and 2 may overlap with those they come from: lift all first. */
static int place_files(const struct run_files *files, int complaint) {
  int lifted[4] = {0};
  for (int i = 0; i < 4; i++) {
    lifted[i] = fcntl(i < 3 ? files->standard[i] : complaint, F_DUPFD_CLOEXEC, 64);
    if (lifted[i] < 0) _exit(2);
  }
  for (int i = 0; i < 3; i++)
    if (dup2(lifted[i], i) < 0) _exit(2);
  if (dup2(lifted[3], 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC)) _exit(2);
  if (syscall(SYS_close_range, 4, ~0U, 0))
    for (int fd = 4; fd < 1024; fd++) close(fd);
  return 3;
}

_Noreturn void guard_exec(const struct order *order, const struct run_files *files, int complaint) {
  for (int i = 0; i < files->join_count; i++)
    if (write(files->join[i], "0", 1) != 1) complain(complaint, "cgroup");
  bool grouped = files->join_count > 0;
  complaint = place_files(files, complaint);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (int number = 1; number < 65; number++) signal(number, SIG_DFL);
  setsid();
  if (chdir("/box")) complain(complaint, "chdir");
  set_limits(order, grouped, complaint);
  drop_privileges(complaint);
  execve(order->args[0], (char *const *)order->args, (char *const *)order->env);
  complain(complaint, "exec");
}
