package bash

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// completeTime bounds the wait for a listing.
	completeTime = 2 * time.Second
	// maxChoices bounds the names that a second Tab lists.
	maxChoices = 200
)

// complete completes the path before the cursor from the listing of its directory.
// A second Tab lists the choices. It returns whether the line changed or must be
// drawn anew. The caller holds mu, which is not held during the listing.
func (a *Attachment) complete(ctx context.Context) bool {
	word := unquote(a.line.text[wordBefore(a.line.text[:a.line.pos]):a.line.pos])
	slash := strings.LastIndexByte(word, '/')
	dir, prefix := word[:slash+1], word[slash+1:]
	var names []string
	if a.s.cfg.List != nil {
		from := a.s.dir
		a.s.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, completeTime)
		names, _ = a.s.cfg.List(ctx, from, dir) // an error leaves nothing to choose from
		cancel()
		a.s.mu.Lock()
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || prefix == "" && strings.HasPrefix(name, ".") ||
			!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) // which cannot be typed
	})
	if len(names) == 0 {
		a.out = append(a.out, '\a')
		return false
	}
	common := names[0]
	for _, name := range names {
		for !strings.HasPrefix(name, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	rest := quotePath(strings.TrimPrefix(common, prefix))
	if len(names) == 1 && !strings.HasSuffix(common, "/") {
		rest += " "
	}
	if rest != "" {
		return a.line.insert([]rune(rest))
	}
	a.out = append(a.out, '\a')
	if !a.listed {
		return false
	}
	a.toEnd()
	a.endLine("")
	for _, name := range names[:min(len(names), maxChoices)] {
		a.out = append(a.out, strings.ReplaceAll(printable(name), "\r\n", " ")+"\r\n"...)
	}
	if more := len(names) - maxChoices; more > 0 {
		a.out = append(a.out, "...\r\n"...)
	}
	return false
}

// shellSigns end a word or must be quoted in one.
const shellSigns = " \t\n|&;<>()$`\\\"'*?[]#~={}!"

// wordBefore returns where the last word of a line starts.
func wordBefore(line []rune) int {
	start := 0
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\':
			i++
		case strings.ContainsRune(" \t|&;<>()`\"'=", line[i]):
			start = i + 1
		}
	}
	return min(start, len(line))
}

// unquote removes the backslashes of a word.
func unquote(word []rune) string {
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] == '\\' && i+1 < len(word) {
			i++
		}
		b.WriteRune(word[i])
	}
	return b.String()
}

// quotePath puts a backslash before each sign that means something to a shell.
func quotePath(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(shellSigns, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
