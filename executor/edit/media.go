package edit

import (
	"cmp"
	"encoding/base64"
	"path/filepath"
	"strings"
)

// readMedia are the media types of files that [Editor.Read] returns as a data URL, by file extension, and dialectMedia
// those of the others that dialects return so.
var (
	readMedia = map[string]string{
		".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".bmp": "image/bmp", ".gif": "image/gif",
		".pdf": "application/pdf", ".mp4": "video/mp4", ".webm": "video/webm", ".ogg": "video/ogg",
	}
	dialectMedia = map[string]string{
		".webp": "image/webp", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".m4a": "audio/mp4", ".flac": "audio/flac",
	}
)

func mediaType(path string) string { return readMedia[strings.ToLower(filepath.Ext(path))] }

func inlineType(path string) string {
	return cmp.Or(mediaType(path), dialectMedia[strings.ToLower(filepath.Ext(path))])
}

func dataURL(mediaType string, data []byte) string {
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data)
}
