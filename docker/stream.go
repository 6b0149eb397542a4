package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/stdcopy"
)

// readPull passes the engine's report of a pull on and finds out how it ended:
// the engine tells of a failure in the report itself.
func readPull(report io.Reader, output io.Writer) error {
	decoder := json.NewDecoder(bufio.NewReader(io.TeeReader(report, output)))
	for {
		var line struct {
			Error string `json:"error"`
		}
		err := decoder.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the report of the pull: %w", err)
		case line.Error != "":
			return errors.New(line.Error)
		}
	}
}

// LogOptions say which lines of a server's log are wanted.
type LogOptions struct {
	Follow     bool
	Tail       int       // the last so many lines; 0: all
	Since      time.Time // zero: from the start
	Timestamps bool
}

// Logs writes what the server of the sandbox logged, and with Follow what it
// will, until ctx or the sandbox ends.
func (h *Host) Logs(ctx context.Context, s *Sandbox, o LogOptions, stdout, stderr io.Writer) error {
	options := container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: o.Follow, Timestamps: o.Timestamps}
	if o.Tail > 0 {
		options.Tail = fmt.Sprint(o.Tail)
	}
	if !o.Since.IsZero() {
		options.Since = o.Since.Format(time.RFC3339Nano)
	}
	logs, err := h.engine.ContainerLogs(ctx, s.Container, options)
	if err != nil {
		return engineError(ctx, "reading the log of sandbox "+s.ID, err)
	}
	defer func() { _ = logs.Close() }()
	_, err = stdcopy.StdCopy(stdout, stderr, logs)
	return engineError(ctx, "reading the log of sandbox "+s.ID, err)
}

// Event is something that happened to a sandbox.
type Event struct {
	Time time.Time
	ID   string // of the sandbox
	Name string // as at birth
	What string // the engine's word: create, start, die, oom, pause, unpause, rename, destroy …
	Code string // exit status, where it died
}

// Events tells each what happens to this controller's sandboxes from now on,
// until ctx ends or each returns an error, which is passed on.
func (h *Host) Events(ctx context.Context, each func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, failed := h.engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", "container"), filters.Arg("label", labelManaged+"=sandbox"), filters.Arg("label", labelController+"="+h.controller),
	)})
	for {
		select {
		case m := <-messages:
			s, ours := h.sandbox(m.Actor.Attributes["name"], m.Actor.ID, "", m.Actor.Attributes)
			if !ours {
				continue
			}
			event := Event{time.Unix(0, m.TimeNano), s.ID, s.Name, string(m.Action), m.Actor.Attributes["exitCode"]}
			if err := each(event); err != nil {
				return err
			}
		case err := <-failed:
			return engineError(ctx, "watching the sandboxes", err)
		}
	}
}

// Stats is what a sandbox uses.
type Stats struct {
	Time                time.Time
	CPU                 float64 // processors busy since the last one; 0 in the first
	Memory, MemoryLimit uint64  // bytes; what the kernel could give back does not count
	Pids                uint64
	NetIn, NetOut       uint64 // bytes since the start
	DiskIn, DiskOut     uint64 // bytes since the start
}

// Stats tells each about once a second what the sandbox uses, or once if stream
// is false, until ctx or the sandbox ends or each returns an error, which is
// passed on.
func (h *Host) Stats(ctx context.Context, s *Sandbox, stream bool, each func(Stats) error) error {
	what := "measuring sandbox " + s.ID
	reader, err := h.engine.ContainerStats(ctx, s.Container, stream)
	if err != nil {
		return engineError(ctx, what, err)
	}
	defer func() { _ = reader.Body.Close() }()
	decoder := json.NewDecoder(reader.Body)
	for {
		var raw container.StatsResponse
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return engineError(ctx, what, err)
		}
		if raw.Read.IsZero() { // the container ended
			return nil
		}
		if err := each(statsOf(&raw)); err != nil {
			return err
		}
	}
}

func statsOf(raw *container.StatsResponse) Stats {
	s := Stats{
		Time: raw.Read, Memory: raw.MemoryStats.Usage, MemoryLimit: raw.MemoryStats.Limit, Pids: raw.PidsStats.Current,
	}
	// Version 1 and 2 of control groups have different names for file pages that
	// nobody used for a while.
	for _, name := range []string{"total_inactive_file", "inactive_file"} {
		if v, ok := raw.MemoryStats.Stats[name]; ok && v < s.Memory {
			s.Memory -= v
			break
		}
	}
	if span := raw.Read.Sub(raw.PreRead); !raw.PreRead.IsZero() && span > 0 && raw.CPUStats.CPUUsage.TotalUsage >= raw.PreCPUStats.CPUUsage.TotalUsage {
		s.CPU = float64(raw.CPUStats.CPUUsage.TotalUsage-raw.PreCPUStats.CPUUsage.TotalUsage) / float64(span)
	}
	for _, n := range raw.Networks {
		s.NetIn += n.RxBytes
		s.NetOut += n.TxBytes
	}
	for _, b := range raw.BlkioStats.IoServiceBytesRecursive {
		switch b.Op {
		case "Read", "read":
			s.DiskIn += b.Value
		case "Write", "write":
			s.DiskOut += b.Value
		}
	}
	return s
}

// FileInfo is a file or directory of a sandbox, itself and not what it leads to.
type FileInfo struct {
	Name string // the last element of its path
	Size int64
	Mode fs.FileMode
	// LinkTarget is where a symbolic link leads, as the agent wrote it.
	LinkTarget string
}

// Stat looks at a file or directory of the sandbox, running or not. It fails
// with fs.ErrNotExist if there is none.
func (h *Host) Stat(ctx context.Context, s *Sandbox, path string) (FileInfo, error) {
	what := "looking at " + path + " in sandbox " + s.ID
	stat, err := safely(ctx, what, func() (container.PathStat, error) {
		return h.engine.ContainerStatPath(ctx, s.Container, path)
	})
	if isNotFound(err) {
		return FileInfo{}, fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	}
	return FileInfo{stat.Name, stat.Size, stat.Mode, stat.LinkTarget}, err
}

// CopyOut reads a file or directory of the sandbox, running or not, as a tar
// archive whose entries begin with its last name. The archive is the agent's
// work: unpack it with care.
func (h *Host) CopyOut(ctx context.Context, s *Sandbox, path string) (io.ReadCloser, error) {
	archive, _, err := h.engine.CopyFromContainer(ctx, s.Container, path)
	if isNotFound(err) {
		return nil, fmt.Errorf("copying %s out of sandbox %s: %w: %w", path, s.ID, fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, engineError(ctx, "copying "+path+" out of sandbox "+s.ID, err)
	}
	return archive, nil
}

// CopyIn unpacks a tar archive into a directory of the sandbox, running or not.
// Owners are those that the archive names.
func (h *Host) CopyIn(ctx context.Context, s *Sandbox, dir string, archive io.Reader) error {
	err := h.engine.CopyToContainer(ctx, s.Container, dir, archive, container.CopyToContainerOptions{})
	if isNotFound(err) {
		return fmt.Errorf("copying into %s of sandbox %s: %w: %w", dir, s.ID, fs.ErrNotExist, err)
	}
	return engineError(ctx, "copying into "+dir+" of sandbox "+s.ID, err)
}
