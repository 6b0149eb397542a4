package api

import "time"

// Listed answers /v1/list: a page of the names in a directory.
type Listed struct {
	// Entries are ordered by the components of their names, byte by byte.
	Entries []ListedEntry `json:"entries"`
	// Next is the parameter after of the next page; "" for the last page.
	Next string `json:"next"`
}

// ListedEntry is a file, a directory or another name in a directory.
type ListedEntry struct {
	// Name is the path below the listed directory. Bytes that are not UTF-8 are replaced there, and
	// NameBase64 has the bytes then.
	Name       string `json:"name"`
	NameBase64 []byte `json:"name_base64,omitzero"`
	// Type is "file", "directory", "symlink", "fifo", "socket", "char_device",
	// "block_device", or "unknown" where Error says why nothing is known.
	Type string `json:"type"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Mode has the permission bits in octal, such as "0644"; "" for an unknown type.
	Mode string `json:"mode"`
	// Modified is when the content changed last.
	Modified time.Time `json:"modified"`
	// Target is the text of a symbolic link, as Name and NameBase64 are.
	Target       string `json:"target,omitzero"`
	TargetBase64 []byte `json:"target_base64,omitzero"`
	// Error says why the entry, or in a recursive list the names in this directory, could not
	// be read; nil where they could.
	Error *Fault `json:"error,omitzero"`
}
