/* How programs die, and what they try to kill with them. */
#include "zoo.h"

DIES(hup, SIGHUP)
DIES(int, SIGINT)
DIES(quit, SIGQUIT)
DIES(ill, SIGILL)
DIES(trap, SIGTRAP)
DIES(abort, SIGABRT)
DIES(bus, SIGBUS)
DIES(fpe, SIGFPE)
DIES(kill, SIGKILL)
DIES(segv, SIGSEGV)
DIES(pipe, SIGPIPE)
DIES(alarm, SIGALRM)
DIES(term, SIGTERM)
DIES(user, SIGUSR1)
DIES(sys, SIGSYS)

CASE(divides_by_zero, "RE", SIGFPE) {
  volatile int zero = 0, many = 10, quotient = many / zero;
  return quotient;
}
CASE(writes_through_null, "RE", SIGSEGV) {
  *(volatile int *)8 = 1;
  return true;
}
CASE(calls_abort, "RE", SIGABRT) { abort(); }
CASE(runs_data, "RE", SIGSEGV) {
  static char data[16] = {(char)0xc3};
  ((void (*)(void))data)();
  return true;
}
CASE(illegal_instruction, "RE", SIGILL) { __builtin_trap(); }
CASE(fails, "RE", 0) { exit(3); }
CASE(fails_like_a_signal, "RE", 0) { exit(137); }
CASE(kills_everybody, "OK", 0) {
  signal(SIGTERM, SIG_IGN);
  kill(-1, SIGTERM);
  return false;
}
CASE(kills_init, "OK", 0) {
  kill(1, SIGKILL);
  kill(1, SIGTERM);
  kill(1, SIGSTOP);
  return kill(1, SIGSEGV) != 0 && errno != EPERM;
}
CASE(kills_parent, "OK", 0) { kill(getppid(), SIGKILL); return false; }
CASE(kills_group, "RE", SIGKILL) { kill(0, SIGKILL); return true; }
CASE(kills_small_numbers, "OK", 0) {
  for (int pid = 3; pid < 5000; pid++)
    if (kill(pid, SIGKILL) == 0) return true;
  return false;
}
CASE(kills_init_by_descriptor, "OK", 0) {
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0);
  syscall(SYS_pidfd_send_signal, fd, SIGSTOP, 0, 0);
  return getppid() != 1;
}
CASE(kills_init_s_thread, "OK", 0) {
  syscall(SYS_tgkill, 1, 1, SIGKILL);
  syscall(SYS_tkill, 1, SIGSTOP);
  return getppid() != 1;
}
CASE(queues_signals_to_init, "OK", 0) {
  for (int i = 0; i < 100000; i++) sigqueue(1, SIGRTMIN + i % 20, (union sigval){i});
  return getppid() != 1;
}
CASE(makes_a_file_kill_init, "OK", 0) {
  /* The owner of a descriptor is told by a signal of one's choice when it can be read. */
  int pair[2];
  if (pipe(pair)) return true;
  fcntl(pair[0], F_SETOWN, 1);
  fcntl(pair[0], F_SETSIG, SIGKILL);
  fcntl(pair[0], F_SETFL, O_ASYNC);
  if (write(pair[1], "x", 1) != 1) return true;
  usleep(20000);
  return getppid() != 1;
}
CASE(joins_the_group_of_init, "OK", 0) { return setpgid(0, 1) == 0; }
CASE(faults_for_ever, "TLE", SIGKILL) {
  /* The handler returns to what faulted. */
  signal(SIGSEGV, (void (*)(int))getppid);
  *(volatile int *)8 = 1;
  return true;
}
CASE(daemon_in_a_session, "OK", 0) {
  if (!fork()) {
    setsid();
    if (!fork()) pause();
    _exit(0);
  }
  wait(NULL);
  return false;
}
CASE(daemon_that_ignores, "OK", 0) {
  if (!fork()) {
    setsid();
    for (int i = 1; i < 65; i++) signal(i, SIG_IGN);
    for (;;) pause();
  }
  return false;
}
CASE(daemon_holds_output, "OK", 0) {
  if (!fork()) {
    setsid();
    for (;;) pause();
  }
  return false;
}
CASE(orphans, "OK", 0) {
  for (int i = 0; i < 20; i++)
    if (!fork()) {
      if (!fork()) pause();
      _exit(0);
    }
  return false;
}
CASE(becomes_subreaper, "OK", 0) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!fork()) {
    if (!fork()) pause();
    _exit(0);
  }
  wait(NULL);
  return false;
}
CASE(disarms_parent_death, "OK", 0) {
  prctl(PR_SET_PDEATHSIG, 0);
  return false;
}
CASE(execs_itself, "RE", 0) {
  execl("/app/zoo", "zoo", "fails", NULL);
  return true;
}
CASE(leaves_a_thread, "OK", 0) {
  pthread_t thread;
  pthread_create(&thread, 0, (void *(*)(void *))pause, 0);
  return false;
}
CASE(pair_of_sockets_is_fine, "OK", 0) {
  int pair[2];
  return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0;
}
CASE(fifo_is_fine, "OK", 0) { return mkfifo("/box/pipe", 0644) != 0; }
CASE(closes_everything, "OK", 0) {
  fputs("held\n", stdout);
  fflush(stdout);
  for (int fd = 0; fd < 64; fd++) close(fd);
  _exit(0);
}
