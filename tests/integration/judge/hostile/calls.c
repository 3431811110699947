/* System calls that reach past a box. */
#include "zoo.h"

CALL(ptrace_traceme, SYS_ptrace, 0, 0, 0, 0)
CALL(ptrace_attach_init, SYS_ptrace, 16, 1, 0, 0)
CALL(process_vm_readv, SYS_process_vm_readv, 1, 0, 0, 0, 0, 0)
CALL(process_vm_writev, SYS_process_vm_writev, 1, 0, 0, 0, 0, 0)
CALL(kcmp, SYS_kcmp, getpid(), getpid(), 0, 0, 0)
CALL(pidfd_getfd, SYS_pidfd_getfd, 0, 0, 0)
CALL(mount_tmpfs, SYS_mount, "x", "/tmp", "tmpfs", 0, 0)
CALL(mount_bind, SYS_mount, "/usr", "/box", 0, MS_BIND, 0)
CALL(remount_root, SYS_mount, 0, "/", 0, MS_REMOUNT | MS_BIND, 0)
CALL(umount_store, SYS_umount2, "/store", MNT_DETACH)
CALL(umount_workspace, SYS_umount2, "/workspace", MNT_DETACH)
CALL(unshare_cgroup, SYS_unshare, CLONE_NEWCGROUP)
#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif
static struct { uint32_t size, spare; uint64_t mount, param, space; } every_mount = {24, 0, UINT64_MAX};
CALL(listmount, SYS_listmount, &every_mount, (uint64_t[64]){0}, 64, 0)
CALL(statmount, SYS_statmount, &every_mount, (char[4096]){0}, 4096, 0)
CALL(umount_proc, SYS_umount2, "/proc", MNT_DETACH)
CALL(pivot_root, SYS_pivot_root, ".", ".")
CALL(chroot, SYS_chroot, "/box")
CALL(open_tree, 428, AT_FDCWD, "/", 1)
CALL(move_mount, 429, AT_FDCWD, "/box", AT_FDCWD, "/tmp", 0)
CALL(fsopen, 430, "tmpfs", 0)
CALL(fspick, 433, AT_FDCWD, "/", 0)
CALL(mount_setattr, 442, AT_FDCWD, "/", 0, 0, 0)
CALL(unshare_user, SYS_unshare, CLONE_NEWUSER)
CALL(unshare_mount, SYS_unshare, CLONE_NEWNS)
CALL(unshare_net, SYS_unshare, CLONE_NEWNET)
CALL(unshare_pid, SYS_unshare, CLONE_NEWPID)
CALL(setns, SYS_setns, open("/proc/self/ns/user", O_RDONLY), 0)
CALL(clone_user, SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)
CALL(clone_net, SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0)
CALL(clone3, SYS_clone3, &(uint64_t[11]){CLONE_NEWUSER, 0, 0, 0, SIGCHLD}, 88)
CALL(add_key, SYS_add_key, "user", "k", "v", 1, -2)
CALL(request_key, SYS_request_key, "user", "k", 0, -2)
CALL(keyctl, SYS_keyctl, 0, -3, 0)
CALL(io_uring, 425, 8, &(char[256]){0})
CALL(bpf, SYS_bpf, 0, 0, 0)
CALL(perf_event, SYS_perf_event_open, &(char[128]){0}, 0, -1, -1, 0)
CALL(userfaultfd, SYS_userfaultfd, 0)
CALL(init_module, SYS_init_module, 0, 0, "")
CALL(finit_module, SYS_finit_module, 0, "", 0)
CALL(delete_module, SYS_delete_module, "x", 0)
CALL(kexec, SYS_kexec_load, 0, 0, 0, 0)
CALL(reboot, SYS_reboot, 0xfee1dead, 672274793, 0x01234567, 0)
CALL(swapon, SYS_swapon, "/box/x", 0)
CALL(swapoff, SYS_swapoff, "/box/x")
CALL(acct, SYS_acct, "/box/x")
CALL(quotactl, SYS_quotactl, 0, 0, 0, 0)
CALL(syslog, SYS_syslog, 3, &(char[64]){0}, 64)
CALL(vhangup, SYS_vhangup)
CALL(settimeofday, SYS_settimeofday, &(struct timeval){1, 0}, 0)
CALL(clock_settime, SYS_clock_settime, 0, &(struct timespec){1, 0})
CALL(adjtimex, SYS_adjtimex, &(char[512]){0})
CALL(sethostname, SYS_sethostname, "mine", 4)
CALL(setdomainname, SYS_setdomainname, "mine", 4)
CALL(open_by_handle, SYS_open_by_handle_at, AT_FDCWD, &(char[64]){0}, 0)
CALL(name_to_handle, SYS_name_to_handle_at, AT_FDCWD, "/box", &(uint32_t[34]){128}, &(int){0}, 0)
CALL(fanotify, SYS_fanotify_init, 0, 0)
CALL(memfd_secret, 447, 0)
CALL(shmget, SYS_shmget, 7, 4096, 0600 | 01000)
CALL(semget, SYS_semget, 7, 1, 0600 | 01000)
CALL(msgget, SYS_msgget, 7, 0600 | 01000)
CALL(mq_open, SYS_mq_open, "q", O_CREAT | O_RDWR, 0600, 0)
CALL(personality, SYS_personality, 0x0040000)
CALL(mknod_disk, SYS_mknodat, AT_FDCWD, "/box/disk", S_IFBLK | 0666, 0x0801)
CALL(mknod_mem, SYS_mknodat, AT_FDCWD, "/box/mem", S_IFCHR | 0666, 0x0101)
CALL(setuid_root, SYS_setresuid, 0, 0, 0)
CALL(setgid_root, SYS_setresgid, 0, 0, 0)
CALL(setgroups, SYS_setgroups, 1, &(gid_t[]){0})
CALL(raise_nofile, SYS_prlimit64, 0, RLIMIT_NOFILE, &(struct rlimit){100000, 100000}, 0)
CALL(raise_fsize, SYS_prlimit64, 0, RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}, 0)
CALL(raise_cpu, SYS_prlimit64, 0, RLIMIT_CPU, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}, 0)
CALL(limit_init, SYS_prlimit64, 1, RLIMIT_CPU, &(struct rlimit){1, 1}, 0)
CALL(realtime, SYS_sched_setscheduler, 0, SCHED_FIFO, &(struct sched_param){50})
CALL(nice_up, SYS_setpriority, PRIO_PROCESS, 0, -20)
CALL(not_yet_invented, 999)
CALL(mlockall, SYS_mlockall, 3)
CALL(capset, SYS_capset, &(uint32_t[2]){0x20080522, 0}, &(uint32_t[6]){~0u, ~0u, ~0u, ~0u, ~0u, ~0u})
CALL(process_madvise, SYS_process_madvise, 0, 0, 0, 0, 0)
CALL(fsconfig, SYS_fsconfig, 0, 0, "x", "y", 0)
CALL(fsmount, SYS_fsmount, 0, 0, 0)
CALL(umount_root, SYS_umount2, "/", MNT_DETACH)
CALL(mount_proc, SYS_mount, "x", "/tmp", "proc", 0, 0)
CALL(mount_shared, SYS_mount, 0, "/", 0, MS_SHARED | MS_REC, 0)
CALL(unshare_uts, SYS_unshare, CLONE_NEWUTS)
CALL(unshare_ipc, SYS_unshare, CLONE_NEWIPC)
CALL(unshare_time, SYS_unshare, 0x80)
CALL(clone_mount, SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0)
CALL(clone_pid, SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0)
CALL(clone_uts, SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0)
CALL(clone_ipc, SYS_clone, CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0)
CALL(clone_cgroup, SYS_clone, CLONE_NEWCGROUP | SIGCHLD, 0, 0, 0, 0)
CALL(setns_of_init, SYS_setns, open("/proc/1/ns/mnt", O_RDONLY), 0)
CALL(setns_by_process, SYS_setns, syscall(SYS_pidfd_open, getpid(), 0), CLONE_NEWNS)
CALL(io_uring_enter, SYS_io_uring_enter, 0, 1, 1, 0, 0, 0)
CALL(io_uring_register, SYS_io_uring_register, 0, 0, 0, 0)
CALL(kexec_file, SYS_kexec_file_load, 0, 0, 0, 0, 0)
CALL(quotactl_fd, SYS_quotactl_fd, 0, 0, 0, 0)
CALL(clock_adjtime, SYS_clock_adjtime, 0, &(char[512]){0})
CALL(mbind, SYS_mbind, 0, 0, 0, 0, 0, 0)
CALL(set_mempolicy, SYS_set_mempolicy, 0, 0, 0)
CALL(migrate_pages, SYS_migrate_pages, 1, 0, 0, 0)
CALL(move_pages, SYS_move_pages, 1, 0, 0, 0, 0, 0)
CALL(deadline, SYS_sched_setattr, 0, &(uint64_t[7]){48 | 6ull << 32, 0, 0, 10000000, 20000000, 20000000}, 0)
CALL(disk_first, SYS_ioprio_set, 1, 0, 1 << 13)
CALL(chown_to_root, SYS_fchownat, AT_FDCWD, "/box", 0, 0, 0)
CALL(file_capability, SYS_setxattr, "/tmp", "security.capability", &(char[20]){1, 0, 0, 2, (char)0xff}, 20, 0)
CALL(trusted_attribute, SYS_setxattr, "/tmp", "trusted.mine", "x", 1, 0)
CALL(immortal, SYS_prctl, PR_SET_IO_FLUSHER, 1, 0, 0, 0)
CALL(secure_bits, SYS_prctl, PR_SET_SECUREBITS, 0x3f, 0, 0, 0)
CALL(new_binary_map, SYS_prctl, PR_SET_MM, 13, 0, 0, 0)
#if defined(__x86_64__)
CALL(mknod_old, SYS_mknod, "/box/disk", S_IFBLK | 0666, 0x0801)
CALL(uselib, SYS_uselib, "/app/zoo")
CALL(ustat, SYS_ustat, 0x0801, &(char[64]){0})
CALL(sysctl, SYS__sysctl, 0)
CALL(x32_getpid, 0x40000000 | 39)
CALL(iopl, SYS_iopl, 3)
CALL(ioperm, SYS_ioperm, 0, 1, 1)
CALL(modify_ldt, SYS_modify_ldt, 0, 0, 0)
CASE(foreign_abi, "RE", SIGSYS) {
  long answer;
  /* getpid of the 32-bit table: its numbers mean other calls. */
  __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20) : "memory");
  return answer > 0;
}
#endif
/* One end of a pair is a socket: it must reach nothing but the other. */
static bool pair_reaches(bool (*out)(int end)) {
  int pair[2];
  return !socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) && out(pair[0]);
}
static struct sockaddr_un log_socket = {AF_UNIX, "/dev/log"};
static bool connects(int end) { return !connect(end, (struct sockaddr *)&log_socket, sizeof log_socket); }
static bool sends_elsewhere(int end) {
  return sendto(end, "x", 1, 0, (struct sockaddr *)&log_socket, sizeof log_socket) == 1;
}
static bool binds(int end) {
  struct sockaddr_un name = {AF_UNIX, "/tmp/mine"};
  return !bind(end, (struct sockaddr *)&name, sizeof name);
}
static bool lists_interfaces(int end) {
  struct { int length; char *at; } list = {4096, (char[4096]){0}};
  /* Only one that loops back, 40 bytes of it. */
  return !ioctl(end, 0x8912 /* SIOCGIFCONF */, &list) && list.length > 40;
}
CASE(pair_connects, "OK", 0) { return pair_reaches(connects); }
CASE(pair_sends_elsewhere, "OK", 0) { return pair_reaches(sends_elsewhere); }
CASE(pair_binds, "OK", 0) { return pair_reaches(binds); }
CASE(pair_lists_interfaces, "OK", 0) { return pair_reaches(lists_interfaces); }
CASE(filter_is_left, "OK", 0) { return !prctl(PR_SET_SECCOMP, 0, 0, 0, 0) || !prctl(PR_SET_SECCOMP, 1, 0, 0, 0); }
CASE(filter_lets_all_through, "OK", 0) {
  struct { unsigned short code; unsigned char yes, no; uint32_t value; } allow = {6, 0, 0, 0x7fff0000};
  struct { unsigned short count; void *steps; } filter = {1, &allow};
  return prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) || socket(AF_INET, SOCK_STREAM, 0) >= 0 ||
         unshare(CLONE_NEWUSER) == 0;
}
CASE(no_new_privs, "OK", 0) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1; }
CASE(ambient_capability, "OK", 0) { return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0) == 0; }
CASE(type_into_terminal, "OK", 0) { return ioctl(0, TIOCSTI, "x") == 0; }
CASE(who_am_i, "OK", 0) { return getuid() == 0 || geteuid() == 0 || getgid() == 0; }
CASE(capabilities_gone, "OK", 0) {
  uint32_t head[2] = {0x20080522, 0}, data[6] = {0};
  syscall(SYS_capget, head, data);
  return data[0] || data[1] || data[2] || data[3] || data[4] || data[5];
}
CASE(bounding_set_gone, "OK", 0) { return prctl(PR_CAPBSET_READ, 21, 0, 0, 0) == 1; }

SOCKET(inet, AF_INET, SOCK_STREAM, 0)
SOCKET(inet_udp, AF_INET, SOCK_DGRAM, 0)
SOCKET(inet6, AF_INET6, SOCK_STREAM, 0)
SOCKET(unix, AF_UNIX, SOCK_STREAM, 0)
SOCKET(raw, AF_INET, SOCK_RAW, 1)
SOCKET(packet, AF_PACKET, SOCK_RAW, 0)
SOCKET(netlink, AF_NETLINK, SOCK_RAW, 0)
SOCKET(vsock, AF_VSOCK, SOCK_STREAM, 0)
SOCKET(alg, AF_ALG, SOCK_SEQPACKET, 0)
SOCKET(bluetooth, AF_BLUETOOTH, SOCK_RAW, 0)
SOCKET(can, AF_CAN, SOCK_RAW, 0)
SOCKET(tipc, AF_TIPC, SOCK_SEQPACKET, 0)
SOCKET(ping, AF_INET, SOCK_DGRAM, 1)
SOCKET(sctp, AF_INET, SOCK_SEQPACKET, 132)
SOCKET(key, 15, SOCK_RAW, 2)
SOCKET(xdp, 44, SOCK_RAW, 0)
SOCKET(rds, 21, SOCK_SEQPACKET, 0)
