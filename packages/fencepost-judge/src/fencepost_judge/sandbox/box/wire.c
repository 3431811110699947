/* Messages with file descriptors over a seqpacket socket, and the clock. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define FDS_MAX 16

ssize_t wire_send(int socket, const void *data, size_t size, const int *fds, int fd_count) {
  struct iovec part = {(void *)data, size};
  char control[CMSG_SPACE(sizeof(int) * FDS_MAX)] = {0};
  struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd_count > 0) {
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
    memcpy(CMSG_DATA(rights), fds, sizeof(int) * (size_t)fd_count);
  }
  ssize_t sent;
  do sent = sendmsg(socket, &head, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t wire_receive(int socket, void *data, size_t size, int *fds, int *fd_count, int flags) {
  struct iovec part = {data, size};
  char control[CMSG_SPACE(sizeof(int) * FDS_MAX)];
  struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got;
  do got = recvmsg(socket, &head, flags | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  int room = fd_count ? *fd_count : 0;
  if (fd_count) *fd_count = 0;
  if (got < 0) return got;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&head); c; c = CMSG_NXTHDR(&head, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    if (fd_count && count <= room) {
      memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)count);
      *fd_count = count;
    }
  }
  if (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    errno = EMSGSIZE;
    return -1;
  }
  return got;
}

void wire_fail(int socket, const char *what, int error) {
  struct message message = {.kind = MSG_FAILED};
  snprintf(message.text, sizeof message.text, "%s: %s", what, strerror(error));
  wire_send(socket, &message, sizeof message, NULL, 0);
}

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
