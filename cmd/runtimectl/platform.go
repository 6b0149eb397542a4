package main

import (
	"errors"
	"fmt"
	"strings"
)

// onVariable is the variable that --on and --local override.
const onVariable = "ACTIOND_ON"

// choosePlatform finds out where the sandboxes are from the flags and the variable.
func (p *program) choosePlatform() error {
	on, from := p.place.on, "--on"
	if on == "" && !p.place.local {
		on, from = p.getenv(onVariable), onVariable
	}
	platform, _, _ := strings.Cut(on, ":")
	switch {
	case on == "docker" && p.place.local:
		return errors.New("--local and --on docker name different platforms: leave one out")
	case on == "", on == "docker":
		return nil
	case on == "local":
		p.place.local = true
		return nil
	case platform == "kubernetes":
		return fmt.Errorf("%s %q: sandboxes on Kubernetes come later; use docker or local", from, on)
	}
	return fmt.Errorf("%s %q: must be docker or local", from, on)
}
