package sandbox

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// GPUs are GPUs of the platform. The zero value is none.
type GPUs struct {
	// Count is how many, or [AllGPUs]. 0: all of Devices.
	Count int
	// Devices are UUIDs, or names of the Container Device Interface such as nvidia.com/gpu=0. Count
	// chooses among them.
	Devices []string
}

// AllGPUs is the Count of all GPUs that the platform has.
const AllGPUs = -1

// gpuName is a UUID of a GPU or of a part of one (MIG), in its present or its older form, or VENDOR/CLASS=NAME.
var gpuName = regexp.MustCompile(`^((GPU|MIG)-[A-Za-z0-9-]+(/[0-9]+/[0-9]+)?|[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*)$`)

// ParseGPUs reads all, a number, or [device=]NAME[,NAME...]; an empty text is none.
func ParseGPUs(text string) (g GPUs, err error) {
	n, notNumber := strconv.Atoi(text)
	switch {
	case text == "":
	case text == "all":
		g.Count = AllGPUs
	case notNumber == nil && n > 0:
		g.Count = n
	default:
		g.Devices = strings.Split(strings.TrimPrefix(text, "device="), ",")
	}
	return g, g.check()
}

func (g GPUs) check() error {
	if g.Count < AllGPUs {
		return Invalid("%d GPUs", g.Count)
	}
	for i, name := range g.Devices {
		switch {
		case !gpuName.MatchString(name):
			return Invalid("GPUs %q: must be all, a number of at least 1, or device= and UUIDs as 'nvidia-smi -L' lists them, or names such as nvidia.com/gpu=0", name)
		case slices.Contains(g.Devices[:i], name):
			return Invalid("GPU %s is named twice", name)
		}
	}
	return nil
}

// IsZero reports whether there are none.
func (g GPUs) IsZero() bool { return g.Count == 0 && len(g.Devices) == 0 }

// String returns a form that [ParseGPUs] takes; the devices to choose from are not in it.
func (g GPUs) String() string {
	switch {
	case g.Count == AllGPUs:
		return "all"
	case g.Count > 0:
		return strconv.Itoa(g.Count)
	case len(g.Devices) > 0:
		return "device=" + strings.Join(g.Devices, ",")
	}
	return ""
}
