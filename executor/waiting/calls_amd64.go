package waiting

import "golang.org/x/sys/unix"

// legacyKinds are the system calls that newer architectures have in one form alone.
var legacyKinds = map[int64]callKind{
	unix.SYS_POLL: callPoll, unix.SYS_SELECT: callSelect, unix.SYS_EPOLL_WAIT: callEpoll, unix.SYS_PAUSE: callSignal,
	unix.SYS_OPEN: callOpen,
}
