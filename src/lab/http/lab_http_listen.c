// The listening socket, made here so that a taken port or a wrong address is named.
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base_fs.h"
#include "base/base_status.h"
#include "lab/http/lab_http_int.h"

enum { BACKLOG = 511 };

// 0, or an errno.
static int listen_at(const struct addrinfo *a, int *out) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1, off = 0;
  if (fd < 0) return errno;
  int err = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ? errno : 0;
  if (a->ai_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (!err && bind(fd, a->ai_addr, a->ai_addrlen) != 0) err = errno;
  if (!err && listen(fd, BACKLOG) != 0) err = errno;
  if (err) {
    close(fd);
    return err;
  }
  *out = fd;
  return 0;
}

static int port_of(int fd) {
  struct sockaddr_storage a;
  socklen_t size = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &size) != 0) return 0;
  if (a.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&a)->sin6_port);
  return ntohs(((const struct sockaddr_in *)&a)->sin_port);
}

brim_status brim_http_listen(const char *address, int port, int *fd, int *bound) {
  struct addrinfo how = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(address, service, &how, &found);
  if (code != 0) {
    return brim_fail(BRIM_EINVAL, "the address %s cannot be used: %s", address, gai_strerror(code));
  }
  int err = EADDRNOTAVAIL;
  for (const struct addrinfo *a = found; a && err; a = a->ai_next) err = listen_at(a, fd);
  freeaddrinfo(found);
  if (err == EADDRINUSE) {
    return brim_fail(BRIM_EEXIST, "another program listens at %s, port %d", address, port);
  }
  if (err) {
    return brim_fail(brim_errno_status(err), "cannot listen at %s, port %d: %s", address, port,
                     brim_errno_text(err));
  }
  *bound = port_of(*fd);
  return BRIM_OK;
}
