// A disk with faults, for LD_PRELOAD: counts the changes below FAULTY_ROOT that a process makes.
//
// Change number FAULTY_AT fails with FAULTY_ERRNO, and all later ones if FAULTY_FOREVER is set; without an
// FAULTY_ERRNO the process is killed just before it. FAULTY_LOG receives a line per change (C) with its number and
// path, and for the replay of a power failure, with inode and path: W (data written), S (file synced), N (new
// name), D (folder synced).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long changes;

static int is_below(const char *path) {
    const char *root = getenv("FAULTY_ROOT");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static void append(char kind, unsigned long inode, const char *path) {
    const char *log = getenv("FAULTY_LOG");
    char line[4200];
    if (!log) return;
    int size = snprintf(line, sizeof line, "%c %lu %s\n", kind, inode, path);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, (size_t)size);
    syscall(SYS_close, fd);
}

// Counts a change; true, with errno, if it fails.
static int fails(const char *path) {
    if (!is_below(path)) return 0;
    long count = atomic_fetch_add(&changes, 1) + 1, at = atol(getenv("FAULTY_AT") ? getenv("FAULTY_AT") : "0");
    append('C', (unsigned long)count, path);
    int number = atoi(getenv("FAULTY_ERRNO") ? getenv("FAULTY_ERRNO") : "0");
    if (at == 0 || count < at || (count > at && !getenv("FAULTY_FOREVER"))) return 0;
    if (number == 0) kill(getpid(), SIGKILL);
    errno = number;
    return 1;
}

static const char *path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static void note(char kind, int fd, const char *path) {
    struct stat found;
    if (!is_below(path) || fstat(fd, &found)) return;
    append(S_ISDIR(found.st_mode) ? 'D' : kind, found.st_ino, path);
}

static void note_name(const char *path) {
    struct stat found;
    if (is_below(path) && !lstat(path, &found)) append('N', found.st_ino, path);
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define ON_FD(type, name, kind, fd, parameters, arguments)       \
    type name parameters {                                       \
        REAL(name);                                              \
        char path[4096];                                         \
        if (fails(path_of(fd, path, sizeof path))) return -1;    \
        type done = real arguments;                              \
        if (done >= 0) note(kind, fd, path);                     \
        return done;                                             \
    }
#define ON_NAME(name, path, parameters, arguments) \
    int name parameters {                          \
        REAL(name);                                \
        if (fails(path)) return -1;                \
        int done = real arguments;                 \
        if (!done) note_name(path);                \
        return done;                               \
    }
#define ON_OPEN(name, path, parameters, arguments)                                        \
    int name parameters {                                                                 \
        REAL(name);                                                                       \
        va_list more;                                                                     \
        va_start(more, flags);                                                            \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0;               \
        va_end(more);                                                                     \
        if (flags & (O_CREAT | O_TRUNC) && fails(path)) return -1;                        \
        int fd = real arguments;                                                          \
        if (fd >= 0 && flags & O_TRUNC) note('W', fd, path);                              \
        return fd;                                                                        \
    }

ON_FD(ssize_t, write, 'W', fd, (int fd, const void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, writev, 'W', fd, (int fd, const struct iovec *parts, int count), (fd, parts, count))
ON_FD(ssize_t, pwrite, 'W', fd, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pwrite64, 'W', fd, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(int, ftruncate, 'W', fd, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, 'W', fd, (int fd, off64_t size), (fd, size))
ON_FD(int, fsync, 'S', fd, (int fd), (fd))
ON_FD(int, fdatasync, 'S', fd, (int fd), (fd))
ON_FD(ssize_t, copy_file_range, 'W', to,
      (int from, off64_t *at, int to, off64_t *target, size_t size, unsigned flags),
      (from, at, to, target, size, flags))
ssize_t sendfile(int, int, off_t *, size_t);
ON_FD(ssize_t, sendfile, 'W', to, (int to, int from, off_t *at, size_t size), (to, from, at, size))
ssize_t sendfile64(int, int, off64_t *, size_t);
ON_FD(ssize_t, sendfile64, 'W', to, (int to, int from, off64_t *at, size_t size), (to, from, at, size))
ON_NAME(rename, new, (const char *old, const char *new), (old, new))
ON_NAME(renameat, new, (int from, const char *old, int to, const char *new), (from, old, to, new))
ON_NAME(link, new, (const char *old, const char *new), (old, new))
ON_NAME(linkat, new, (int from, const char *old, int to, const char *new, int flags), (from, old, to, new, flags))
ON_NAME(mkdir, path, (const char *path, mode_t mode), (path, mode))
ON_NAME(unlink, path, (const char *path), (path))
ON_NAME(rmdir, path, (const char *path), (path))
ON_OPEN(open, path, (const char *path, int flags, ...), (path, flags, mode))
ON_OPEN(open64, path, (const char *path, int flags, ...), (path, flags, mode))
ON_OPEN(openat, path, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
ON_OPEN(openat64, path, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
