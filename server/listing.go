package server

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/server/files"
)

const (
	// maxEntries bounds a page of names, and is the default.
	maxEntries = 1000
	// maxEntriesBytes bounds the names and targets of a page.
	maxEntriesBytes = 1 << 20
)

// listDirectory answers with a page of the names in a directory. The entries are read with
// the rights of the sandbox's user, and no link is followed.
func (s *Server) listDirectory(w http.ResponseWriter, r *http.Request) error {
	name, err := s.filePath(r)
	if err != nil {
		return err
	}
	recursive, err := yes(r, "recursive")
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", maxEntries, maxEntries)
	if err != nil {
		return err
	}
	if limit == 0 {
		return invalid("query.limit: must be a whole number from 1 to %d, got 0", maxEntries)
	}
	after, ok := osfiles.DecodeCursor(r.URL.Query().Get("after"))
	if !ok {
		return invalid("query.after: must be the next of a page, got %s", api.Describe(r.URL.Query().Get("after")))
	}
	page := api.Listed{Entries: []api.ListedEntry{}}
	var entries []osfiles.Entry
	err = s.cfg.As(func() error {
		dir, err := files.OpenDirectory(name)
		if err != nil {
			return err
		}
		defer dir.Close()
		l := osfiles.Listing{
			Dir: dir, Recursive: recursive, After: after, Limit: int(limit), Bytes: maxEntriesBytes, //nolint:gosec // at most maxEntries
			Ended: func() error { return context.Cause(r.Context()) },
		}
		entries, page.Next, err = l.Page()
		return err
	})
	if err != nil {
		return files.Error(err, name)
	}
	for i := range entries {
		page.Entries = append(page.Entries, listedEntry(name, &entries[i]))
	}
	page.Next = osfiles.EncodeCursor(page.Next)
	return writeJSON(w, http.StatusOK, page)
}

// fileTypes are the words for the types of files.
var fileTypes = map[uint32]string{
	unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "symlink", unix.S_IFIFO: "fifo",
	unix.S_IFSOCK: "socket", unix.S_IFCHR: "char_device", unix.S_IFBLK: "block_device",
}

func listedEntry(dir string, e *osfiles.Entry) api.ListedEntry {
	entry := api.ListedEntry{Type: "unknown", Modified: e.Modified().UTC()}
	entry.Name, entry.NameBase64 = asText(e.Name)
	entry.Target, entry.TargetBase64 = asText(e.Target)
	if e.Stat != nil {
		entry.Type, entry.Size = fileTypes[e.Stat.Mode&unix.S_IFMT], e.Stat.Size
		entry.Mode = fmt.Sprintf("%04o", e.Stat.Mode&0o7777)
	}
	if e.Err != nil {
		shown, _ := asText(path.Join(dir, e.Name))
		entry.Error = &api.Fault{Code: osfiles.Code(e.Err), Path: shown, Errno: osfiles.Errno(e.Err)}
	}
	return entry
}

// asText returns a name as text, and its bytes where they are not UTF-8.
func asText(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, "\uFFFD"), []byte(name)
}
