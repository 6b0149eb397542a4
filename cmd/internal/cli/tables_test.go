package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// Every table fits a window of 80 columns, and there nothing is cut but names and texts.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	const sandboxID, action = "0123456789ab", "0197f3a0-5c1e-7a55-9d0e-3c1f5a2b7c44"
	name, text := strings.Repeat("long-name-", 6)+"end", strings.Repeat("some text ", 30)
	now := time.Now()
	old, later := time.Date(2026, 1, 2, 13, 14, 15, 0, time.Local), now.Add(90*time.Hour)
	used := statsInfo{
		ID: sandboxID, Name: name, CPUs: 63.99, Memory: 123456789012, MemoryLimit: 234567890123, Pids: 4096,
		Received: 345678901234, Sent: 456789012345, Read: 567890123456, Written: 678901234567,
	}
	for _, tt := range []struct {
		what  string
		rows  [][]string
		whole []string
	}{
		{"actions", actionList{
			{ID: action, N: 12345, State: api.StateCancelled, Session: "default", Kind: "run_ipython", Begin: old, OutputBytes: 123456789, Text: text},
			{ID: action, N: 9, State: api.StateRunning, Session: name, Kind: "browse_interactive", Begin: now, Text: text},
		}.Table(), []string{"12345", "cancelled", "2026-01-02", "123.5MB", now.Format(time.TimeOnly), "BEGAN", "OUTPUT"}},
		{"wait", oneAction{ID: action, N: 1, State: api.StateDone, Kind: "run", Begin: old, Text: "true"}.Table(), []string{"2026-01-02", "true"}},
		{"ls", sandboxList{{ID: sandboxID, Name: name, Image: text, State: "running", Created: old, Deadline: &later, Pool: name}}.Table(), []string{sandboxID, "running", "3 days", "POOL"}},
		{"prune", removalList{{ID: sandboxID, Name: name, Reason: text}}.Table(), []string{sandboxID}},
		{"ports", portList{{Port: 65535, Addresses: []string{"127.0.0.1", "::1", "::ffff:192.168.100.200"}, PID: 4194304, Process: "a-long-process", Command: text}}.Table(), []string{"65535", "4194304"}},
		{"stats", statsList{used}.Table(), []string{sandboxID, "63.99", "115GiB", "218.5GiB", "4096", "345.7GB", "456.8GB", "567.9GB", "678.9GB", "RECEIVED", "WRITTEN"}},
		{"events", [][]string{eventInfo{}.Headings(), eventInfo{Time: old, ID: sandboxID, Name: name, What: "die", Code: "137"}.Row()}, []string{"2026-01-02 13:14:15", sandboxID, "die with status 137"}},
		{"tools", toolTable{{Name: "str_replace_based_edit_tool", Description: text}}.Table(), []string{"str_replace_based_edit_tool"}},
	} {
		var out bytes.Buffer
		if err := output.WriteTable(&out, tt.rows, 80); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		for _, line := range lines {
			if output.TextWidth(line) > 80 {
				t.Errorf("%s: wider than 80 columns: %s", tt.what, line)
			}
		}
		for _, whole := range tt.whole {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(" "+line+" ", " "+whole+" ") }) {
				t.Errorf("%s: %q is cut:\n%s", tt.what, whole, out.String())
			}
		}
	}
}
