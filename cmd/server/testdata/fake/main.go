// Fake is a program that is no server. The last word of its file says what it does when it
// is asked.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		os.Exit(3)
	}
	mode := string(self[strings.LastIndexByte(string(self), ' ')+1:])
	checked := len(os.Args) > 2 && os.Args[1] == "upgrade"
	switch {
	case mode == "hangs":
		time.Sleep(time.Hour)
	case mode == "fails":
		fmt.Fprintln(os.Stderr, "a sentence")
		os.Exit(1)
	case mode == "talks":
		fmt.Println("hello")
		return
	case mode == "refuses" && checked:
		fmt.Fprintln(os.Stderr, "too new for me")
		os.Exit(1)
	case mode == "locks" && checked:
		_ = os.Chmod("/proc/self/fd/3", 0o400)
	}
	fmt.Println("actiond server v0-fake")
}
