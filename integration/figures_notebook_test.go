//go:build figures

package integration_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

const notebookRounds = 1000

// notebook measures cells in a kernel that runs, and counts what of a thousand
// flushed prints arrives. It needs ipykernel.
func (f *figures) notebook() {
	p := f.launch("tcp")
	defer p.stop(f)
	cell := func(code string) (answer []byte, took time.Duration) {
		begun := time.Now()
		answer, err := p.ask(request("run_ipython", "", map[string]any{"code": code}))
		took = time.Since(begun)
		if err != nil {
			f.Fatal(err)
		}
		if bytes.Contains(answer, []byte(`"observation":"error"`)) {
			f.Skipf("there is no kernel: %s", clip(answer))
		}
		return answer, took
	}
	_, first := cell("1")
	var ours sample
	for range notebookRounds {
		answer, took := cell("1+1")
		if !bytes.Contains(answer, []byte(`"content":"2\n[`)) {
			f.Fatalf("1+1 answered %s", clip(answer))
		}
		ours = append(ours, took)
	}
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, `%d\n`, i)
	}
	answer, _ := cell("for i in range(1000): print(i, flush=True)")
	if !bytes.Contains(answer, []byte(`"content":"`+want.String()+`[`)) {
		f.Errorf("some of 1,000 prints are lost: %s", clip(answer))
	}
	p50 := ours.median()
	f.table.add(row{name: "first cell, with the start of its kernel", ours: ms(first)})
	f.table.add(row{
		name: "`1+1` in a kernel that runs, p50", ours: ms(p50), target: "≤ 5 ms", met: new(p50 <= 5*time.Millisecond),
	})
	f.table.add(row{name: "`1+1` in a kernel that runs, p99", ours: ms(ours.quantile(0.99))})
}
