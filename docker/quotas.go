package docker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/actiond/actiond/sandbox"
)

// sharedQuotas returns findings about resources of the host's kernel that sandboxes share
// although each has its limits. users counts the sandboxes of each user id,
// and sysctls is /proc/sys.
func sharedQuotas(learned *facts, users map[int]int, sysctls string) []Finding {
	return slices.Concat(sharedTerminals(learned, sysctls), sharedUserIDs(learned, users, sysctls), sharedFiles(sysctls))
}

// sharedTerminals is about pseudo-terminals: each session of a shell has one.
func sharedTerminals(learned *facts, sysctls string) []Finding {
	total, reserve, used := sysctl(sysctls, "kernel/pty/max"), sysctl(sysctls, "kernel/pty/reserve"), sysctl(sysctls, "kernel/pty/nr")
	if total == 0 {
		return nil
	}
	what := fmt.Sprintf("pseudo-terminals of this host: %d of %d are in use", used, total)
	if !learned.terminals {
		return []Finding{{what, "this engine cannot limit them: one sandbox can take all, and then no other gets a new session; a higher kernel.pty.max makes that harder"}}
	}
	return []Finding{{what, fmt.Sprintf(
		"a sandbox has at most %d: raise kernel.pty.max where there are more than %d sandboxes", maxTerminals, max(0, total-reserve)/maxTerminals)}}
}

// sharedUserIDs is the finding about resources that the kernel counts for each user id.
func sharedUserIDs(learned *facts, users map[int]int, sysctls string) []Finding {
	quotas := "inotify instances"
	if n := sysctl(sysctls, "fs/inotify/max_user_instances"); n > 0 {
		quotas += fmt.Sprintf(" (%d)", n)
	}
	quotas += ", pipe buffers and message queues"
	var found []Finding
	for _, id := range slices.Sorted(maps.Keys(users)) {
		switch n := users[id]; {
		case id == 0 && !learned.remapped:
			found = append(found, Finding{fmt.Sprintf("%d run commands as root", n), "they share " + quotas + " with this host's root"})
		case n > 1:
			found = append(found, Finding{
				fmt.Sprintf("%d have the user id %d", n, id),
				"they share " + quotas + ": a sandbox has an id of its own where --user names none and no mount is writable",
			})
		}
	}
	return found
}

// sharedFiles is about the kernel's table of open files.
func sharedFiles(sysctls string) []Finding {
	const each = sandbox.DefaultPids * sandbox.DefaultFiles
	total := sysctl(sysctls, "fs/file-max")
	if total == 0 || total > each {
		return nil
	}
	return []Finding{{
		fmt.Sprintf("this host has %d open files at most", total),
		fmt.Sprintf("a sandbox may have %d, and then others get none: raise fs.file-max, or lower --nofile and --pids-limit", each),
	}}
}

// sysctl is the first number of a kernel parameter, 0 where it cannot be read.
func sysctl(dir, name string) int {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\t")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}
