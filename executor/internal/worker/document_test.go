package worker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/internal/document"
	"github.com/actiond/actiond/executor/internal/worker"
	"github.com/actiond/actiond/internal/testhelp"
)

// pdf returns a document whose tree of pages and whose only stream are as given.
func pdf(pages string) string {
	head := "%PDF-1.7\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n"
	second := len(head)
	body := head + "2 0 obj\n" + pages + "\nendobj\n"
	return body + fmt.Sprintf("xref\n0 3\n0000000000 65535 f \n%010d 00000 n \n%010d 00000 n \ntrailer\n<</Size 3/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n",
		len("%PDF-1.7\n"), second, len(body))
}

// The libraries have no limits of their own; the child has.
func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 8<<20)
	for _, test := range []struct {
		name, kind, data string
		want             error // nil: an error of the document, or one of the limits
	}{
		{"pages that are their own parent", ".pdf", pdf("<</Type/Pages/Count 9/Kids[2 0 R]>>"), worker.ErrTime},
		{"arrays in arrays", ".pdf", pdf(deep), nil},
		{"a PDF of nothing", ".pdf", pdf("null"), errText},
		{"lists in lists", ".ipynb", `{"cells":` + deep, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			testhelp.WriteFile(t, path, test.data, 0o600)
			in, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			page, err := worker.New(nil, 4*time.Second, 256<<20).Convert(in, int64(len(test.data)), document.Request{Kind: test.kind, First: 1, Last: -1, Most: 1000})
			switch {
			case errors.Is(test.want, errText):
				if err != nil || !strings.Contains(page.Text, "0 pages") {
					t.Errorf("got %+v and %v", page, err)
				}
			case test.want != nil && !errors.Is(err, test.want), test.want == nil && !errors.As(err, new(*worker.Error)) && !errors.Is(err, worker.ErrMemory) && !errors.Is(err, worker.ErrTime):
				t.Errorf("got %+v and %v", page, err)
			}
		})
	}
}

// errText stands for a text instead of an error.
var errText = errors.New("text")
