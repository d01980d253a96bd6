/*
** terminal.c -- the terminal of a session over several ranks.
**
** A launcher keeps the terminal to itself, reads it and gives rank 0 a pipe: another process that takes the foreground
** or reads it makes mpirun stop. So rank 0 leaves it there, but sets it to hand over every key, and puts a pseudo
** terminal between the pipe and the session: line editing works there as ever, and Ctrl-C becomes a signal to rank 0
** alone. A guard, a small child process in a group of its own, holds a pipe from rank 0 and restores the terminal when
** that is closed, however rank 0 has ended.
*/
#define _GNU_SOURCE
#include "core/process.h"
#include "repl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* ---- the launcher ---- */

/* True if that descriptor of a process is the terminal of this session. */
static bool is_terminal_of(int pid, int descriptor)
{
    char path[64];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
    if (stat(path, &s) != 0 || !S_ISCHR(s.st_mode)) return false;
    int file = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return false;
    bool is = isatty(file) && tcgetsid(file) == getsid(0);
    close(file);
    return is;
}

static int open_terminal(void) { return open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC); }

bool fl_terminal_is_there(void)
{
    int pid = fl_launcher(), file;
    if (isatty(STDIN_FILENO)) return true;
    if (!is_terminal_of(pid, STDIN_FILENO) || (file = open_terminal()) < 0) return false;
    bool foreground = tcgetpgrp(file) == getpgid(pid);
    close(file);
    return foreground;
}

/* ---- keys ---- */

static struct {
    int file;             /* -1: not taken */
    struct termios modes; /* as they were */
    int launcher;
    int guard_pipe; /* closed: the guard acts */
    pid_t guard;
    int pipe;      /* from the launcher */
    int far, near; /* ends of the pseudo terminal: this file's, and what the session reads */
} terminal = {.file = -1};

/* A key that is no input while the session does not read all keys. */
static int signal_of(const struct termios *modes, char key)
{
    if (!(modes->c_lflag & ISIG)) return 0;
    return key == (char)modes->c_cc[VINTR] ? SIGINT : key == (char)modes->c_cc[VQUIT] ? SIGQUIT : 0;
}

static void copy_size(void)
{
    struct winsize size;
    if (ioctl(terminal.file, TIOCGWINSZ, &size) == 0) ioctl(terminal.near, TIOCSWINSZ, &size);
}

enum { KEYS_LIMIT = 1 << 20 };

/* Keys that the pseudo terminal has no room for yet, as of a long paste. */
static struct {
    char *at; /* owned */
    size_t count, room;
} keys;

/* Keys beyond the limit are dropped: Ctrl-C must always come through. */
static void keep_key(char key)
{
    if (keys.count == keys.room) {
        size_t room = keys.room ? 2 * keys.room : 1024;
        char *at = room <= KEYS_LIMIT ? realloc(keys.at, room) : NULL;
        if (!at) return;
        keys.at = at;
        keys.room = room;
    }
    keys.at[keys.count++] = key;
}

static void send_keys(void)
{
    ssize_t n = keys.count ? write(terminal.far, keys.at, keys.count) : 0;
    if (n <= 0) return;
    keys.count -= (size_t)n;
    memmove(keys.at, keys.at + n, keys.count);
}

/* A signal drops the keys before it, as in a terminal. */
static void pass_keys(const char *text, ssize_t n)
{
    struct termios modes;
    copy_size();
    if (tcgetattr(terminal.near, &modes) != 0) return;
    for (ssize_t i = 0; i < n; i++) {
        int number = signal_of(&modes, text[i]);
        if (!number) {
            keep_key(text[i]);
            continue;
        }
        keys.count = 0;
        kill(getpid(), number);
    }
    send_keys();
}

/* A thread: keys from the launcher to the session, the echo of a line that is read plainly to the terminal. */
static void *relay(void *context)
{
    char text[4096];
    struct pollfd from[] = {{.fd = terminal.pipe, .events = POLLIN}, {.fd = terminal.far}};
    for (;;) {
        from[1].events = (short)(POLLIN | (keys.count ? POLLOUT : 0));
        if (poll(from, 2, -1) < 0) {
            if (errno == EINTR) continue;
            return NULL;
        }
        ssize_t n;
        if (from[0].revents) {
            n = read(terminal.pipe, text, sizeof text);
            if (n > 0) pass_keys(text, n);
            else if (n == 0 || errno != EINTR) {
                pass_keys("\004", 1);
                from[0].fd = -1;
            }
        }
        if (from[1].revents & POLLOUT) send_keys();
        if (from[1].revents & POLLIN && (n = read(terminal.far, text, sizeof text)) > 0
            && write(terminal.file, text, (size_t)n) < 0)
            return NULL;
    }
}

static fl_status start_relay(void)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t detached;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&thread, &detached, relay, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return why ? fl_fail(FL_ERR_IO, "terminal: cannot start the thread that reads keys: %s", strerror(why)) : FL_OK;
}

static fl_status open_pseudo_terminal(void)
{
    char name[64];
    terminal.far = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (terminal.far >= 0 && grantpt(terminal.far) == 0 && unlockpt(terminal.far) == 0
        && ptsname_r(terminal.far, name, sizeof name) == 0) {
        terminal.near = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (terminal.near >= 0 && tcsetattr(terminal.near, TCSANOW, &terminal.modes) == 0) return FL_OK;
    }
    return fl_fail(FL_ERR_IO, "terminal: cannot open a pseudo terminal: %s", strerror(errno));
}

/* ---- taking it and giving it back ---- */

/* Not when another job has the terminal by now. */
static void restore(void)
{
    if (tcgetpgrp(terminal.file) == getpgid(terminal.launcher)) tcsetattr(terminal.file, TCSADRAIN, &terminal.modes);
}

__attribute__((noreturn)) static void guard(int pipe)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTTOU};
    char byte;
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    if (dup2(pipe, 0) < 0 || dup2(terminal.file, 1) < 0) _exit(1);
    terminal.file = 1;
    close_range(2, ~0u, 0);
    while (read(0, &byte, 1) < 0 && errno == EINTR) continue;
    restore();
    _exit(0);
}

static fl_status start_guard(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fl_fail(FL_ERR_IO, "terminal: no pipe: %s", strerror(errno));
    terminal.guard = fork();
    if (terminal.guard == 0) {
        close(ends[1]);
        guard(ends[0]);
    }
    close(ends[0]);
    terminal.guard_pipe = ends[1];
    return terminal.guard > 0 ? FL_OK
                              : fl_fail(FL_ERR_IO, "terminal: cannot start its guard process: %s", strerror(errno));
}

/* If the launcher has the terminal as that descriptor this process gets it too. The old descriptor stays open: a rank
** whose output and errors are closed gets no more input from Open MPI. */
static void redirect(int file, int pid, int descriptor)
{
    if (!is_terminal_of(pid, descriptor) || fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) < 0) return;
    fflush(NULL);
    dup2(file, descriptor);
}

/* Every key is passed on as it comes; output is as before. */
static fl_status set_raw(void)
{
    struct termios raw = terminal.modes;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(terminal.file, TCSADRAIN, &raw) == 0
        ? FL_OK
        : fl_fail(FL_ERR_IO, "/dev/tty cannot be used: %s", strerror(errno));
}

fl_status fl_terminal_take(void)
{
    if (isatty(STDIN_FILENO)) return FL_OK;
    terminal.launcher = fl_launcher();
    terminal.file = open_terminal();
    if (terminal.file < 0 || tcgetattr(terminal.file, &terminal.modes) != 0)
        return fl_fail(FL_ERR_IO, "/dev/tty cannot be used: %s", strerror(errno));
    signal(SIGTTOU, SIG_IGN); /* this process is in the background */
    FL_TRY(open_pseudo_terminal());
    copy_size();
    FL_TRY(start_guard());
    FL_TRY(set_raw());
    atexit(fl_terminal_give_back);
    terminal.pipe = dup(STDIN_FILENO);
    dup2(terminal.near, STDIN_FILENO);
    clearerr(stdin);
    redirect(terminal.file, terminal.launcher, STDOUT_FILENO);
    redirect(terminal.file, terminal.launcher, STDERR_FILENO);
    return start_relay();
}

void fl_terminal_give_back(void)
{
    if (terminal.file < 0) return;
    fflush(stdout);
    restore();
    close(terminal.guard_pipe);
    waitpid(terminal.guard, NULL, 0);
    terminal.file = -1;
}

bool fl_terminal_shows(int descriptor)
{
    return isatty(descriptor) && (!fl_launched(NULL) || is_terminal_of(fl_launcher(), descriptor));
}

int fl_terminal_join(void)
{
    int pid = fl_launcher(), file = open_terminal();
    if (file < 0) return STDOUT_FILENO;
    signal(SIGTTOU, SIG_IGN); /* this process writes from the background */
    redirect(file, pid, STDERR_FILENO);
    if (is_terminal_of(pid, STDOUT_FILENO)) return file;
    close(file);
    return STDOUT_FILENO;
}
