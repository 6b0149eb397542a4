package waiting

import "golang.org/x/sys/unix"

// callKind is the kind of event that a system call waits for.
type callKind int

const (
	callUnknown callKind = iota
	callRead             // input of the descriptor in its first argument
	callWrite            // room for output there
	callConnect          // a connection of it
	callPoll             // descriptors in a list, with a time in milliseconds
	callPpoll            // the same, with the address of a time
	callSelect           // descriptors in sets
	callEpoll            // descriptors that an epoll descriptor watches, with a time in milliseconds
	callEpoll2           // the same, with the address of a time
	callSleep
	callWait
	callFlock
	callFcntl
	callFutex
	callSignal
	callDisk
	callOpen
	callQueue
	callRestart // another call, which a stop signal interrupted
)

// kinds are the system calls that wait, by their numbers, which all architectures of 64
// bits have under these names. legacyKinds has the others.
var kinds = map[int64]callKind{
	unix.SYS_READ: callRead, unix.SYS_READV: callRead, unix.SYS_PREAD64: callRead, unix.SYS_PREADV: callRead, unix.SYS_PREADV2: callRead,
	unix.SYS_RECVFROM: callRead, unix.SYS_RECVMSG: callRead, unix.SYS_RECVMMSG: callRead,
	unix.SYS_ACCEPT: callRead, unix.SYS_ACCEPT4: callRead, unix.SYS_SPLICE: callRead, unix.SYS_TEE: callRead,
	unix.SYS_WRITE: callWrite, unix.SYS_WRITEV: callWrite, unix.SYS_PWRITE64: callWrite, unix.SYS_PWRITEV: callWrite, unix.SYS_PWRITEV2: callWrite,
	unix.SYS_SENDTO: callWrite, unix.SYS_SENDMSG: callWrite, unix.SYS_SENDMMSG: callWrite, unix.SYS_SENDFILE: callWrite,
	unix.SYS_CONNECT: callConnect,
	unix.SYS_PPOLL:   callPpoll, unix.SYS_PSELECT6: callSelect, unix.SYS_EPOLL_PWAIT: callEpoll, unix.SYS_EPOLL_PWAIT2: callEpoll2,
	unix.SYS_NANOSLEEP: callSleep, unix.SYS_CLOCK_NANOSLEEP: callSleep,
	unix.SYS_WAIT4: callWait, unix.SYS_WAITID: callWait,
	unix.SYS_FLOCK: callFlock, unix.SYS_FCNTL: callFcntl,
	unix.SYS_FUTEX: callFutex, unix.SYS_FUTEX_WAITV: callFutex,
	unix.SYS_RT_SIGSUSPEND: callSignal, unix.SYS_RT_SIGTIMEDWAIT: callSignal,
	unix.SYS_FSYNC: callDisk, unix.SYS_FDATASYNC: callDisk, unix.SYS_SYNC: callDisk, unix.SYS_SYNCFS: callDisk, unix.SYS_IO_GETEVENTS: callDisk,
	unix.SYS_OPENAT: callOpen, unix.SYS_OPENAT2: callOpen,
	unix.SYS_MSGRCV: callQueue, unix.SYS_MSGSND: callQueue, unix.SYS_SEMOP: callQueue, unix.SYS_SEMTIMEDOP: callQueue,
	unix.SYS_MQ_TIMEDRECEIVE: callQueue, unix.SYS_MQ_TIMEDSEND: callQueue,
	unix.SYS_RESTART_SYSCALL: callRestart,
}

func kindOf(number int64) callKind {
	if kind, ok := kinds[number]; ok {
		return kind
	}
	return legacyKinds[number]
}
