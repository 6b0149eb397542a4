package main

import "runtime/debug"

// release is set by packagers: -ldflags "-X main.release=v1.2.3".
var release string

// version is the release, or the module version of this build.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
