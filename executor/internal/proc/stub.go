package proc

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc/reexec"
)

// stub is a program in memory that carries out system calls, one after the other, and is made
// for one start. It stands between this program and the one to be executed as a copy of this
// program would (see the package comment), and begins in a tenth of the time: it has one page
// of code, no runtime and no environment. The code is in stub_*.s.
type stub struct {
	steps []step
	data  []byte // the arguments in memory
}

// step is one system call. The code knows its layout.
type step struct {
	number uintptr
	args   [4]uintptr
	report uintptr // the descriptor to report a failure on; 0 ignores it
}

// The layout of a stub in memory. Segments begin on pages, of at most 64 KiB.
const (
	stubText  = 0x400000
	stubData  = 0x410000 // of the steps, then the data; the code has this number
	maxCode   = 256
	stubSteps = 16
)

// maxTexts is as many bytes as the kernel takes in arguments and variables (execve(2)). It refuses
// more, which would be copied several times in this process to be refused in another.
const maxTexts = 6 << 20

// stubCode is the address of the code, 0 on machines without one.
var stubCode uintptr

// probe is a question to the system whose answer is kept.
type probe struct {
	mu    sync.Mutex
	known bool
	runs  bool
}

// ask returns the known answer, or whether try succeeds. A failure for lack of descriptors, memory
// or processes may pass and is not kept.
func (p *probe) ask(try func() error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		err := try()
		lacks := func(lack syscall.Errno) bool { return errors.Is(err, lack) }
		p.runs, p.known = err == nil, !slices.ContainsFunc([]syscall.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN}, lacks)
	}
	return p.runs
}

var stubProbe probe

// stubRuns reports whether this system executes stubs: some forbid programs in memory.
func stubRuns() bool { return stubProbe.ask(runStub) }

// runStub runs a stub that only ends.
func runStub() error {
	s := stub{}
	s.do(0, unix.SYS_EXIT_GROUP)
	file, err := s.file()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return (&exec.Cmd{Path: stubPath(3), ExtraFiles: []*os.File{file}, Env: []string{}}).Run()
}

// stubPath is the path of a stub with a descriptor of the process that executes it.
func stubPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// useStub makes cmd start a stub, which takes on the user's rights, changes the directory and
// executes the program, and reports to say. The caller closes the file after the start.
func useStub(cmd *exec.Cmd, say *os.File) (file *os.File, err error) {
	size := 0
	for _, text := range slices.Concat(cmd.Args, cmd.Env, []string{cmd.Path, cmd.Dir}) {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, syscall.EINVAL
		}
		if size += len(text); size > maxTexts {
			return nil, syscall.E2BIG
		}
	}
	report := uintptr(3 + len(cmd.ExtraFiles))
	free := report + 1 // that of the stub itself, once it is closed
	if hole := slices.Index(cmd.ExtraFiles, nil); hole >= 0 {
		free = uintptr(3 + hole)
	}
	var s stub
	s.do(0, unix.SYS_CLOSE, report+1)
	s.do(report, unix.SYS_FCNTL, report, unix.F_SETFD, unix.FD_CLOEXEC)
	standard := s.bytes(make([]byte, 64)) // a struct sigaction with SIG_DFL
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		s.do(0, unix.SYS_RT_SIGACTION, uintptr(signal), standard, 0, 8) // 8: the size of a sigset_t
	}
	s.do(0, unix.SYS_OPENAT, 0, s.bytes([]byte("/proc/self/oom_score_adj\x00")), unix.O_WRONLY)
	s.do(0, unix.SYS_WRITE, free, s.bytes([]byte(reexec.OOMScore)), uintptr(len(reexec.OOMScore)))
	s.do(0, unix.SYS_CLOSE, free)
	if c := credential(cmd); c != nil {
		var groups []byte
		for _, group := range c.Groups {
			groups = binary.LittleEndian.AppendUint32(groups, group)
		}
		s.do(report, unix.SYS_SETGROUPS, uintptr(len(c.Groups)), s.bytes(groups))
		s.do(report, unix.SYS_SETGID, uintptr(c.Gid))
		s.do(report, unix.SYS_SETUID, uintptr(c.Uid))
	}
	if cmd.Dir != "" {
		s.do(report, unix.SYS_CHDIR, s.bytes([]byte(cmd.Dir+"\x00")))
	}
	s.do(report, unix.SYS_EXECVE, s.bytes([]byte(cmd.Path+"\x00")), s.list(cmd.Args), s.list(cmd.Environ()))
	if file, err = s.file(); err != nil {
		return nil, err
	}
	interpose(cmd, stubPath(int(report)+1), []string{reexec.Name}, []string{}, say, file)
	return file, nil
}

// do adds a step.
func (s *stub) do(report, number uintptr, args ...uintptr) {
	added := step{number: number, report: report}
	copy(added.args[:], args)
	s.steps = append(s.steps, added)
}

// bytes adds data, and returns its address.
func (s *stub) bytes(data []byte) (address uintptr) {
	s.data = append(s.data, make([]byte, -len(s.data)&7)...)
	address = stubData + stubSteps*unsafe.Sizeof(step{}) + uintptr(len(s.data))
	s.data = append(s.data, data...)
	return address
}

// list adds texts and the list of their addresses, and returns the address of the list.
func (s *stub) list(texts []string) (address uintptr) {
	var list []byte
	for _, text := range texts {
		list = binary.LittleEndian.AppendUint64(list, uint64(s.bytes([]byte(text+"\x00"))))
	}
	return s.bytes(binary.LittleEndian.AppendUint64(list, 0))
}

// file returns the executable file of a stub.
func (s *stub) file() (*os.File, error) {
	if stubCode == 0 || len(s.steps) > stubSteps {
		return nil, errors.ErrUnsupported
	}
	fd, err := unix.MemfdCreate(reexec.Name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(reexec.Name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), reexec.Name)
	data := slices.Grow([]byte(nil), stubSteps*int(unsafe.Sizeof(step{}))+len(s.data))
	for _, step := range s.steps {
		for _, word := range slices.Concat([]uintptr{step.number}, step.args[:], []uintptr{step.report}) {
			data = binary.LittleEndian.AppendUint64(data, uint64(word))
		}
	}
	data = append(data[:stubSteps*unsafe.Sizeof(step{})], s.data...)
	_, err = file.Write(stubHead(uint64(len(data))))
	if err == nil {
		_, err = file.WriteAt(data, stubData-stubText)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// stubHead returns the header of a stub with size bytes of steps and data, and the code.
func stubHead(size uint64) []byte {
	const headers = 64 + 3*56
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	header := elf.Header64{
		Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_EXEC),
		Machine: uint16(machine),
		Version: uint32(elf.EV_CURRENT),
		Entry:   stubText + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
	}
	segments := [3]elf.Prog64{
		{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: stubText,
			Filesz: headers + maxCode, Memsz: headers + maxCode, Align: stubData - stubText,
		},
		{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: stubData - stubText, Vaddr: stubData,
			Filesz: size, Memsz: size, Align: stubData - stubText,
		},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W)}, // not executable
	}
	head, _ := binary.Append(nil, binary.LittleEndian, header) // both have fixed sizes
	head, _ = binary.Append(head, binary.LittleEndian, segments)
	code := *(**[maxCode]byte)(unsafe.Pointer(&stubCode)) //nolint:gosec // the code and what follows it in this program
	return append(head, code[:]...)
}

// stubFailure is the error in the report of a stub.
func stubFailure(report, program, dir string) error {
	if len(report) != 16 {
		return fmt.Errorf("starting %s: %q", program, report)
	}
	number, code := binary.LittleEndian.Uint64([]byte(report)), binary.LittleEndian.Uint64([]byte(report[8:]))
	step := reexec.StepRights
	switch number {
	case unix.SYS_CHDIR:
		step = reexec.StepDir
	case unix.SYS_EXECVE:
		step = reexec.StepExec
	}
	return failed(step, syscall.Errno(code), program, dir)
}
