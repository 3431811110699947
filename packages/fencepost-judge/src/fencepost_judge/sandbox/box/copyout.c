/* Taking files out of a box, and into the next one: regular files and folders only, step by step, following nothing.
 *
 * Every process of the box is dead by now, but the names and kinds are what it left: a link, a FIFO or a device
 * in the output is refused, never opened as what it leads to.
 */
#define _GNU_SOURCE
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 16

struct budget { long bytes, files; };

static const char *copy_file(int from, int folder, const char *name, mode_t mode, struct budget *budget) {
  char block[65536];
  int to = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, mode & 0111 ? 0755 : 0644);
  if (to < 0) return "output_write";
  const char *wrong = NULL;
  for (ssize_t got; !wrong && (got = read(from, block, sizeof block)) != 0;) {
    if (got < 0 || write(to, block, (size_t)got) != got) wrong = "output_write";
    else if ((budget->bytes -= got) < 0) wrong = "output_too_large";
  }
  close(to);
  return wrong;
}

/* Without privileges its modes bind us as they bound the program; but what it left is our own user's. */
static int open_against_its_mode(int from, const char *name) {
  char path[64];
  struct stat kind;
  int fd = -1, place = openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/self/fd/%d", place);
  if (place >= 0 && !fstat(place, &kind) && (S_ISREG(kind.st_mode) || S_ISDIR(kind.st_mode)) &&
      !chmod(path, (kind.st_mode & 07777) | S_IRUSR))
    fd = open(path, O_RDONLY | O_CLOEXEC);
  if (place >= 0) close(place);
  return fd;
}

static int open_entry(int from, const char *name) {
  int fd = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  return fd < 0 && errno == EACCES ? open_against_its_mode(from, name) : fd;
}

static const char *copy_folder(int from, int to, int depth, struct budget *budget);

static const char *copy_entry(int from, const char *name, int to, int depth, struct budget *budget) {
  struct stat kind;
  if (--budget->files < 0) return "output_too_many_files";
  int fd = open_entry(from, name);
  if (fd < 0) return errno == ELOOP ? "output_link" : "output_unreadable";
  const char *wrong = fstat(fd, &kind) ? "output_unreadable" : NULL;
  if (!wrong && S_ISREG(kind.st_mode)) {
    wrong = copy_file(fd, to, name, kind.st_mode, budget);
  } else if (!wrong && S_ISDIR(kind.st_mode)) {
    int below = depth == 0 || mkdirat(to, name, 0755) ? -1 : openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    wrong = below < 0 ? "output_too_deep" : copy_folder(fd, below, depth - 1, budget);
    if (below >= 0) close(below);
  } else if (!wrong) {
    wrong = "output_special_file";
  }
  close(fd);
  return wrong;
}

static const char *copy_folder(int from, int to, int depth, struct budget *budget) {
  /* What the judge shows to a box can be read and not changed. */
  bool locked = fchmod(from, S_IRWXU) && errno != EROFS && errno != EPERM;
  DIR *listing = locked ? NULL : fdopendir(fcntl(from, F_DUPFD_CLOEXEC, 0));
  if (!listing) return "output_unreadable";
  const char *wrong = NULL;
  for (struct dirent *entry; !wrong && (entry = readdir(listing));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      wrong = copy_entry(from, entry->d_name, to, depth, budget);
  closedir(listing);
  return wrong;
}

const char *copy_out(int from, const char *to, long kb_max, long files_max) {
  struct budget budget = {kb_max * 1024, files_max};
  int folder = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return "output_folder";
  const char *wrong = copy_folder(from, folder, DEPTH_MAX, &budget);
  close(folder);
  return wrong;
}
