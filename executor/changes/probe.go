package changes

import (
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// storesHaveTimes reports whether a store through a mapping, after the page was read, changes the times of a file in the
// directory fd. On tmpfs it does not, nor on overlayfs over tmpfs, which does not say what it lies on. known is false if a
// file without a name could not be made to try it.
func storesHaveTimes(fd int) (yes, known bool) {
	file, err := unix.Openat(fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, false
	}
	defer func() { _ = unix.Close(file) }()
	if _, err := unix.Write(file, []byte{0}); err != nil {
		return false, false
	}
	// The old time makes the answer independent of the clock's resolution.
	const old = 1
	if err := unix.Futimes(file, []unix.Timeval{{Sec: old}, {Sec: old}}); err != nil {
		return false, false
	}
	data, err := unix.Mmap(file, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return false, false
	}
	defer func() { _ = unix.Munmap(data) }()
	if !storeByte(data) {
		return false, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return false, false
	}
	return st.Mtim.Sec != old, true
}

// storeByte changes the first byte. It reports false where the page cannot be had, as on a full disk.
func storeByte(data []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	data[0]++
	return true
}
