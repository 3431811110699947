/* Files of the host, of other boxes, of the supervisor; and what the box itself must not become. */
#include "zoo.h"

READS(shadow, "/etc/shadow")
READS(host_name, "/etc/hostname")
READS(machine_id, "/etc/machine-id")
READS(root_home, "/root")
READS(home, "/home")
READS(var, "/var/log")
READS(sys, "/sys/fs/cgroup")
READS(run, "/run")
READS(boot, "/boot")
READS(dev_mem, "/dev/mem")
READS(dev_kmsg, "/dev/kmsg")
READS(dev_fuse, "/dev/fuse")
READS(dev_kvm, "/dev/kvm")
READS(dev_tty, "/dev/tty")
READS(dev_sda, "/dev/sda")
READS(dev_net_tun, "/dev/net/tun")
READS(init_environ, "/proc/1/environ")
READS(init_mem, "/proc/1/mem")
READS(init_fds, "/proc/1/fd")
READS(init_root, "/proc/1/root/")
READS(init_cwd, "/proc/1/cwd/")
READS(init_maps, "/proc/1/maps")
READS(kcore, "/proc/kcore")
READS(kallsyms, "/proc/kallsyms")
READS(keys, "/proc/keys")
READS(sysrq, "/proc/sysrq-trigger")
READS(proc_sys, "/proc/sys/kernel/core_pattern")
READS(dot_dot, "/../../../../etc/shadow")
READS(docker_socket, "/var/run/docker.sock")
READS(own_root_up, "/proc/self/root/../etc/shadow")
READS(task_root, "/proc/thread-self/root/etc/shadow")
READS(ssh_keys, "/root/.ssh/authorized_keys")
READS(kmsg, "/proc/kmsg")
READS(slabs, "/proc/slabinfo")
READS(page_counts, "/proc/kpagecount")
READS(debug, "/sys/kernel/debug")
READS(firmware, "/sys/firmware")
READS(loop_control, "/dev/loop-control")
READS(mapper, "/dev/mapper/control")
READS(port, "/dev/port")
READS(terminals, "/dev/ptmx")
READS(console, "/dev/console")
READS(huge_pages, "/dev/hugepages")
READS(init_names, "/proc/1/ns/pid")
WRITES(root, "/mine")
WRITES(usr, "/usr/lib/mine")
WRITES(etc, "/etc/mine")
WRITES(passwd, "/etc/passwd")
WRITES(app, "/app/mine")
WRITES(app_self, "/app/zoo")
WRITES(dev, "/dev/mine")
WRITES(store, "/store/mine")
WRITES(workspace, "/workspace/mine")
WRITES(none, "/none/mine")
WRITES(oom_score, "/proc/1/oom_score_adj")
WRITES(drop_caches, "/proc/sys/vm/drop_caches")
WRITES(binary_formats, "/proc/sys/fs/binfmt_misc/register")
WRITES(cgroup, "/sys/fs/cgroup/cgroup.procs")
WRITES(kmsg, "/dev/kmsg")
WRITES(watchdog, "/dev/watchdog")
WRITES(own_root_up, "/proc/self/root/../usr/lib/mine")

static bool is_empty(const char *path) {
  DIR *listing = opendir(path);
  int names = 0;
  while (listing && readdir(listing)) names++;
  return names <= 2;
}

CASE(store_is_empty, "OK", 0) { return !is_empty("/store"); }
CASE(workspace_is_empty, "OK", 0) { return !is_empty("/workspace"); }
CASE(box_is_new, "OK", 0) {
  bool used = !is_empty("/box") || !is_empty("/tmp") || !is_empty("/dev/shm");
  close(open("/box/left", O_CREAT | O_WRONLY, 0600));
  close(open("/tmp/left", O_CREAT | O_WRONLY, 0600));
  close(open("/dev/shm/left", O_CREAT | O_WRONLY, 0600));
  return used;
}
CASE(box_is_new_again, "OK", 0) { return !is_empty("/box") || !is_empty("/tmp") || !is_empty("/dev/shm"); }
CASE(sees_no_other_process, "OK", 0) {
  DIR *listing = opendir("/proc");
  int processes = 0;
  for (struct dirent *entry; listing && (entry = readdir(listing));) processes += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
  return processes > 2;
}
/* Names that the tests give to folders of the host; cgroups and the box's own program begin with the second. */
static bool names_the_host(const char *text) {
  return strstr(text, "workspace-") || strstr(text, "fencepost-") || strstr(text, "pytest-");
}
static bool tells_of_the_host(const char *path) {
  static char text[1 << 16];
  struct stat kind;
  ssize_t length = -1;
  if (lstat(path, &kind)) return false;
  if (S_ISLNK(kind.st_mode)) length = readlink(path, text, sizeof text - 1);
  else if (S_ISREG(kind.st_mode)) {
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
  }
  for (ssize_t i = 0; i < length; i++) text[i] = text[i] ? text[i] : ' ';
  if (length >= 0) text[length] = 0;
  if (length < 0 || !names_the_host(text)) return false;
  printf("%s: %.300s\n", path, text);
  return true;
}
static bool proc_tells(const char *folder, int depth) {
  char path[512];
  bool told = false;
  DIR *listing = opendir(folder);
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "net")) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_type == DT_DIR && depth) told |= proc_tells(path, depth - 1);
    else told |= tells_of_the_host(path);
  }
  if (listing) closedir(listing);
  return told;
}
CASE(proc_shows_no_host_path, "OK", 0) { return access("/proc/self/mountinfo", R_OK) || proc_tells("/proc", 4); }
/* Also of a process that it has started, and of init by its number. */
CASE(proc_of_others_shows_no_host_path, "OK", 0) {
  static const char *const NAMES[] = {"mountinfo", "mounts", "cmdline", "cgroup", "comm", "status", "stat"};
  char path[64];
  pid_t child = fork();
  if (!child) pause(), _exit(0);
  bool told = false;
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    snprintf(path, sizeof path, "/proc/1/%s", NAMES[i]);
    told |= tells_of_the_host(path);
    snprintf(path, sizeof path, "/proc/%d/%s", (int)child, NAMES[i]);
    told |= tells_of_the_host(path);
  }
  kill(child, SIGKILL);
  return told;
}
CASE(environment_is_empty, "OK", 0) {
  extern char **environ;
  return *environ != NULL;
}
CASE(no_descriptor_leaks, "OK", 0) {
  for (int fd = 3; fd < 1024; fd++)
    if (fcntl(fd, F_GETFD) != -1) return true;
  return false;
}
CASE(host_name_is_not_told, "OK", 0) {
  char name[64] = "";
  gethostname(name, sizeof name);
  return strcmp(name, "box") != 0;
}
CASE(no_network_interface, "OK", 0) { return access("/proc/net/dev", R_OK) == 0 && access("/sys/class/net/eth0", F_OK) == 0; }
CASE(maps_itself_to_root, "OK", 0) {
  int fd = open("/proc/self/uid_map", O_WRONLY);
  return write(fd, "0 0 1", 5) == 5;
}
CASE(last_to_be_killed, "OK", 0) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY);
  return write(fd, "-1000", 5) == 5;
}
CASE(maps_groups, "OK", 0) {
  int fd = open("/proc/self/gid_map", O_WRONLY);
  return write(fd, "0 0 1", 5) == 5;
}
CASE(climbs_out_of_the_root, "OK", 0) {
  for (int i = 0; i < 100; i++)
    if (chdir("..")) return false;
  return open("etc/shadow", O_RDONLY) >= 0 || open("root", O_RDONLY) >= 0;
}
CASE(writes_its_own_text, "RE", SIGSEGV) {
  *(volatile char *)(uintptr_t)exit = (char)0xc3;
  return true;
}
CASE(swaps_folders_with_a_link, "OK", 0) {
  /* The name is a folder now and a link then, for every reader. */
  symlink("/etc", "/tmp/link");
  mkdir("/tmp/folder", 0755);
  for (int i = 0; i < 2000; i++) {
    syscall(SYS_renameat2, AT_FDCWD, "/tmp/link", AT_FDCWD, "/tmp/folder", 2);
    if (open("/tmp/folder/shadow", O_RDONLY) >= 0) return true;
  }
  return false;
}
CASE(parent_is_init, "OK", 0) { return getppid() != 1; }
CASE(chmod_the_root, "OK", 0) { return chmod("/", 0777) == 0; }
CASE(chmod_program, "OK", 0) { return chmod("/app/zoo", 0777) == 0; }
CASE(remove_program, "OK", 0) { return unlink("/app/zoo") == 0; }
CASE(rename_tmp, "OK", 0) { return rename("/tmp", "/gone") == 0; }
CASE(replace_box, "OK", 0) { return unlink("/box") == 0; }
CASE(setuid_file, "OK", 0) {
  int fd = open("/box/s", O_CREAT | O_WRONLY, 0755);
  fchmod(fd, 04755);
  return fchown(fd, 0, 0) == 0;
}
CASE(hard_link_to_program, "OK", 0) { return link("/app/zoo", "/box/zoo") == 0; }
CASE(link_in_output, "RE", 0) { return symlink("/etc/passwd", "/out/main") != 0; }
CASE(link_folder_in_output, "RE", 0) { return symlink("/", "/out/dir") != 0; }
CASE(link_deep_in_output, "RE", 0) {
  mkdir("/out/a", 0755);
  return symlink("../../../etc/passwd", "/out/a/b") != 0;
}
CASE(link_to_a_process_in_output, "RE", 0) { return symlink("/proc/self/root/etc/passwd", "/out/main") != 0; }
CASE(link_instead_of_output, "OK", 0) {
  /* The folder itself is a mount: nothing takes its place. */
  return rmdir("/out") == 0 || rename("/out", "/tmp/out") == 0;
}
CASE(fifo_in_output, "RE", 0) { return mkfifo("/out/main", 0644) != 0; }
CASE(unreadable_in_output, "OK", 0) {
  close(open("/out/secret", O_CREAT | O_WRONLY, 0));
  return false;
}
CASE(deep_output, "RE", 0) {
  char path[256] = "/out";
  for (int i = 0; i < 40; i++) mkdir(strcat(path, "/d"), 0755);
  return false;
}
CASE(many_outputs, "RE", 0) {
  char path[64];
  for (int i = 0; i < 1500; i++) {
    snprintf(path, sizeof path, "/out/%d", i);
    close(open(path, O_CREAT | O_WRONLY, 0644));
  }
  return false;
}
CASE(large_output_file, "RE", 0) {
  char block[65536] = {0};
  for (int file = 0; file < 8; file++) {
    char path[32];
    snprintf(path, sizeof path, "/out/%d", file);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    for (int i = 0; i < 14; i++)
      if (write(fd, block, sizeof block) < 0) return false;
  }
  return false;
}
