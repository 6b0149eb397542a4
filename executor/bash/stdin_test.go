package bash_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/bash/screen"
	"github.com/actiond/actiond/internal/testhelp"
)

// filters are command lines that read standard input and print text: one for
// each BusyBox applet (Debian's busybox-static, 1.35) that reads standard
// input, and the shells' own ways to read it. FILE is a file with the same
// bytes as standard input.
var filters = []string{
	"ash -c 'read x; echo got $x; cat'",
	"awk '{ print NR, $0 }'",
	"base64",
	"base64 | base64 -d",
	"busybox cat",
	"busybox sh -c 'cat; read x; echo end $x'",
	"bzip2 -c | bunzip2 -c",
	"bzip2 -c | bzcat",
	"cat",
	"cat - FILE",
	"cat -n",
	"cmp - FILE && echo same",
	"cpio -t 2>&1",
	"crc32 /dev/stdin",
	"cut -c 1",
	"cut -d ' ' -f 2",
	"dd bs=4 count=2 2>/dev/null",
	"dd 2>/dev/null",
	"diff - FILE && echo same",
	"dos2unix",
	"egrep 'o|1'",
	"env cat",
	"expand -t 4",
	"factor 2>&1",
	"fgrep two",
	"fold -w 3",
	"grep -n o",
	"grep -c ''",
	"gzip -c | gunzip -c",
	"gzip -c | zcat",
	"gzip -c | uncompress 2>&1",
	"head -n 1",
	"head -c 5",
	"hexdump -C",
	"ionice cat",
	"less | cat",
	"lzma -c 2>/dev/null | lzcat 2>&1",
	"lzop -c | lzop -d -c | cat",
	"md5sum",
	"more",
	"nl",
	"nl -b a",
	"od -c",
	"od -An -tx1",
	"paste - -",
	"paste -s -d ,",
	"rev",
	"sed 's/o/0/g'",
	"sed -n 2p",
	"sed 1q",
	"sh -c 'cat'",
	"sh -c 'read x; echo got $x'",
	"sha1sum",
	"sha256sum",
	"sha3sum",
	"sha512sum",
	"shuf | sort",
	"sort",
	"sort -r -u",
	"split -l 1 - part. && cat part.*",
	"strings",
	"sum 2>&1",
	"tac",
	"tail -n 1",
	"tail -n +2",
	"tail -c 4",
	"tar -tf - 2>&1",
	"taskset 1 cat",
	"tee copy; cat copy",
	"timeout 60 cat",
	"tr a-z A-Z",
	"tr -d '\\n'",
	"ts x",
	"unexpand -a",
	"uniq -c",
	"unix2dos | od -c",
	"unlzma -c 2>&1 | wc -l",
	"unxz -c 2>&1 | wc -l",
	"uuencode name",
	"uuencode name | uudecode -o /dev/stdout",
	"wc",
	"wc -l",
	"xargs",
	"xargs -n 1 echo item",
	"xargs -I {} echo '<{}>'",
	"xxd",
	"xxd -p",
	"xzcat 2>&1 | wc -l",
	"bc 2>/dev/null",
	"dc -e '?p'",
	"ed -s FILE",
	"patch -p0 2>&1",
	"getopt ab -- -a; cat",
	"mkpasswd -m md5 -S saltsalt -P 0",
	"{ read a; read b; echo \"$b $a\"; cat; }",
	"while read -r line; do echo \"<$line>\"; done",
	"(head -n 1; cat)",
	"for i in 1 2; do head -c 1; echo; done",
	"eval 'read x; echo $x; cat'",
	"true",
	"echo nothing",
}

// sources are the ways that a filter gets its standard input.
var sources = map[string]string{
	"pipe":          "cat in | { FILTER; }", // in one write: the shell's printf makes one for each line
	"file":          "{ FILTER; } < in",
	"here-document": "{ FILTER; } <<EOF\n1+1\n2 two\n3 o\nEOF",
	"middle":        "cat in | { FILTER; } | cat",
	"substitution":  "echo \"$(cat in | { FILTER; })\"",
	"function":      "f() { FILTER; }; f < in",
	"nothing":       "{ FILTER; } < /dev/null",
}

// A program reads the standard input that the command gives it, as a shell that was
// given the text with -c shows, and never what the server writes to the shell.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	applets := applets(t)
	for shell, program := range shells(t) {
		for source, form := range sources {
			t.Run(shell+"/"+source, func(t *testing.T) {
				t.Parallel()
				cfg := config(t, program)
				cfg.Env[0] = "PATH=" + applets + ":" + os.Getenv("PATH")
				s, err := bash.Start(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for _, filter := range filters {
					text := strings.ReplaceAll(strings.ReplaceAll(form, "FILTER", filter), "FILE", "in")
					checkLikeScript(t, s, cfg, text)
				}
			})
		}
	}
}

// applets is a directory with BusyBox's applets, for the shells that look
// programs up on the PATH.
func applets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "busybox", "--install", "-s", dir).CombinedOutput(); err != nil {
		t.Fatalf("busybox --install: %v: %s", err, out)
	}
	return dir
}

// checkLikeScript runs text in the session and as a script of the same shell,
// each in a fresh directory, and compares.
func checkLikeScript(t *testing.T, s *bash.Session, cfg bash.Config, text string) {
	t.Helper()
	here, there := inputDirectory(t), inputDirectory(t)
	cmd := exec.CommandContext(t.Context(), cfg.Program, "-c", text)
	cmd.Env, cmd.Dir = cfg.Env, there
	want, _ := cmd.CombinedOutput()
	do(t, s, "cd "+here)
	r := do(t, s, text)
	if got := strings.TrimRight(r.Output, "\n"); got != asShown(want) || r.Status != cmd.ProcessState.ExitCode() {
		t.Errorf("%q: got status %d and %q, want %d and %q", text, r.Status, got, cmd.ProcessState.ExitCode(), asShown(want))
	}
	if r := do(t, s, "echo next"); r.Output != "next" || r.Status != 0 {
		t.Errorf("after %q: got %q", text, r.Output)
	}
}

// asShown is what a terminal shows of output.
func asShown(output []byte) string {
	terminal := screen.New(1000, 1000)
	_, _ = terminal.Write([]byte(strings.ReplaceAll(string(output), "\n", "\r\n")))
	text, _ := terminal.Text()
	return strings.TrimRight(text, "\n")
}

func inputDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testhelp.WriteFile(t, filepath.Join(dir, "in"), "1+1\n2 two\n3 o\n", 0o600)
	return dir
}
