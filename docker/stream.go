package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/actiond/actiond/sandbox"
)

// readReport calls each with every message of the engine's report of a pull. It returns the error that the report ends with, if the work failed.
func readReport(report io.Reader, each func(jsonmessage.JSONMessage)) error {
	decoder := json.NewDecoder(bufio.NewReader(report))
	for {
		var message jsonmessage.JSONMessage
		err := decoder.Decode(&message)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the engine's report: %w", err)
		case message.Error != nil:
			return message.Error
		}
		each(message)
	}
}

// pullProgress reports the sum of the progress of a pull's layers.
func pullProgress(tell func(status string, done, total int64)) func(jsonmessage.JSONMessage) {
	type layer struct{ done, total int64 }
	layers := map[string]layer{}
	return func(m jsonmessage.JSONMessage) {
		if m.Status != "Downloading" || m.Progress == nil || m.Progress.Total <= 0 {
			tell(m.Status, 0, 0)
			return
		}
		layers[m.ID] = layer{m.Progress.Current, m.Progress.Total}
		var sum layer
		for _, l := range layers {
			sum.done, sum.total = sum.done+l.done, sum.total+l.total
		}
		tell(m.Status, sum.done, sum.total)
	}
}

// Logs writes the log of the sandbox's server, and with Follow continues until ctx
// or the sandbox ends.
func (h *Host) Logs(ctx context.Context, s *sandbox.Sandbox, o sandbox.LogOptions, stdout, stderr io.Writer) error {
	options := container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: o.Follow, Timestamps: o.Timestamps}
	if o.Tail != nil {
		options.Tail = fmt.Sprint(*o.Tail)
	}
	if !o.Since.IsZero() {
		options.Since = o.Since.Format(time.RFC3339Nano)
	}
	logs, err := h.engine.ContainerLogs(ctx, s.Instance, options)
	if err != nil {
		return engineError(ctx, "reading the log of sandbox "+s.ID, err)
	}
	defer func() { _ = logs.Close() }()
	_, err = stdcopy.StdCopy(stdout, stderr, logs)
	return engineError(ctx, "reading the log of sandbox "+s.ID, err)
}

// Events calls each with the events of this controller's sandboxes from now on,
// until ctx ends or each returns an error, which it returns.
func (h *Host) Events(ctx context.Context, each func(sandbox.Event) error) error {
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
			event := sandbox.Event{Time: time.Unix(0, m.TimeNano), ID: s.ID, Name: s.Name, What: string(m.Action), Code: m.Actor.Attributes["exitCode"]}
			if err := each(event); err != nil {
				return err
			}
		case err := <-failed:
			return engineError(ctx, "watching the sandboxes", err)
		}
	}
}

// Stats calls each with the resource usage of the sandbox about once a second, or once
// if stream is false, until ctx or the sandbox ends or each returns an error, which it
// returns.
func (h *Host) Stats(ctx context.Context, s *sandbox.Sandbox, stream bool, each func(sandbox.Stats) error) error {
	what := "measuring sandbox " + s.ID
	reader, err := h.engine.ContainerStats(ctx, s.Instance, stream)
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

func statsOf(raw *container.StatsResponse) sandbox.Stats {
	s := sandbox.Stats{
		Time: raw.Read, Memory: raw.MemoryStats.Usage, MemoryLimit: raw.MemoryStats.Limit, Pids: raw.PidsStats.Current,
	}
	// Version 1 and 2 of control groups have different names for file pages that
	// were not used for a while.
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
