package changes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxMappings bounds the mappings that a step looks at, of all processes together: the kernel allows each 65,530. A process
	// counts for leastMappings at least.
	maxMappings   = 200_000
	leastMappings = 100
	// maxMapping bounds the line of a mapping, in bytes: each of a path may take four.
	maxMapping = 4*unix.PathMax + 200
)

// rereadMapped marks the files that living processes have mapped shared, and those of the last step: a store to a page
// that was written before leaves no event and no time. They are read again in any case.
func (t *Tracker) rereadMapped(pids []int) {
	last := t.mapped
	t.mapped = map[member]struct{}{}
	inos := map[uint64]struct{}{}
	var root string
	var err error
	if len(pids) > 0 {
		root, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", t.rootFD))
	}
	left := maxMappings
	for _, pid := range pids {
		if left <= 0 {
			t.because(WhyMapped)
			break
		}
		if err == nil {
			var n int
			n, err = t.readMaps(pid, root, inos, left)
			left -= max(n, leastMappings)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
			err = nil // it has ended
		case err != nil:
			t.because(WhyMapped)
			err = nil
		}
	}
	if len(inos) > 0 {
		for _, d := range t.dirs {
			for _, k := range d.kids {
				if _, ok := inos[k.attr.ino]; ok {
					t.mapped[member{d, k.name}] = struct{}{}
				}
			}
		}
	}
	t.forced = last
	if t.forced == nil {
		t.forced = map[member]struct{}{}
	}
	for m := range t.mapped {
		t.forced[m] = struct{}{}
	}
	for m := range t.forced {
		t.mark(m.d)
	}
}

// readMaps adds the files of one process: to t.mapped where they are found by path, otherwise to inos. It returns how many
// mappings there are, and fails if these are more than most.
func (t *Tracker) readMaps(pid int, root string, inos map[uint64]struct{}, most int) (n int, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	device := fmt.Sprintf("%02x:%02x", t.device.major, t.device.minor)
	lines := bufio.NewReaderSize(f, maxMapping)
	for ; ; n++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		case n == most:
			return n, errChanged
		}
		// address perms offset dev inode path (proc_pid_maps(5))
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 6)
		if len(fields) < 6 || len(fields[1]) < 4 || fields[1][3] != 's' {
			continue
		}
		path := strings.ReplaceAll(strings.TrimLeft(string(fields[5]), " "), `\012`, "\n")
		if rel, ok := strings.CutPrefix(path, root+"/"); ok {
			if m, ok := t.find(rel); ok {
				t.mapped[m] = struct{}{}
				continue
			}
		} else if fields[1][1] != 'w' {
			continue // a library's data, which most processes have
		}
		ino, err := strconv.ParseUint(string(fields[4]), 10, 64)
		if err == nil && string(fields[3]) == device {
			inos[ino] = struct{}{} // by another name, as after an unlink
		}
	}
}

// find returns the entry with a path below the root.
func (t *Tracker) find(path string) (member, bool) {
	d := t.root
	for {
		name, rest, more := strings.Cut(path, "/")
		if !more {
			_, ok := find(d.kids, name)
			return member{d, name}, ok
		}
		if d = d.subs[name]; d == nil {
			return member{}, false
		}
		path = rest
	}
}
