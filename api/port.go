package api

import "strconv"

// Port is a TCP port that a process of the sandbox listens on.
type Port struct {
	Port int `json:"port"`
	// Addresses are those it listens on, such as "127.0.0.1" and "::".
	Addresses []string `json:"addresses"`
	// PID and Process are the id and the name of the process with the lowest id.
	PID     int    `json:"pid"`
	Process string `json:"process"`
	// Command is the start of the process's command line, at most 256 bytes.
	Command string `json:"command"`
	// Forwards is true if a tunnel reaches the port, because it listens on the loopback
	// interface.
	Forwards bool `json:"forwards"`
}

// PortList answers /v1/ports. Ports must not be nil, which is encoded as null.
type PortList struct {
	Ports []Port `json:"ports"`
}

// ParsePort reads the number of a port from 1 to 65535: decimal digits and nothing
// else. An error is an *[Error] with status 400.
func ParsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, BadRequest("A port is a number from 1 to 65535, got " + Excerpt(text))
	}
	return uint16(n), nil
}
