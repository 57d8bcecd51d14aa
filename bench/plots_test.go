package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The same figures give the same bytes, so that a plot changes in the repository only if its figures do.
func TestPlotsAreDeterministic(t *testing.T) {
	t.Parallel()
	f := figures{
		Ratios: []row{
			{Scenario: "first run", Callers: 1, comparison: comparison{Ratio: .9, Low: .8, High: 1}},
			{Scenario: "first run", Callers: 256, comparison: comparison{Ratio: 4, Low: 3.5, High: 4.2}},
			{Scenario: "replay", Callers: 1, comparison: comparison{Ratio: .7, Low: .6, High: .8}},
			{Scenario: "replay", Callers: 256, comparison: comparison{Ratio: 20, Low: 18, High: 21}},
		},
		Growth: []growth{
			{Rows: 10_000, FirstRun: latency{P50: time.Millisecond}, Retry: latency{P50: 100 * time.Microsecond}, Replay: latency{P50: 100 * time.Microsecond}},
			{Rows: 10_000_000, FirstRun: latency{P50: time.Millisecond}, Retry: latency{P50: 110 * time.Microsecond}, Replay: latency{P50: 120 * time.Microsecond}},
		},
	}
	plots := func() map[string]string {
		dir := t.TempDir()
		if err := f.draw(dir); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.svg"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got[filepath.Base(file)] = string(text)
		}
		return got
	}
	first := plots()
	if len(first) != 2 {
		t.Errorf("%d plots, want ratios.svg and growth.svg", len(first))
	}
	if diff := cmp.Diff(first, plots()); diff != "" {
		t.Errorf("the second drawing differs (-first +second):\n%s", diff)
	}
}

// What a run does not measure stays in the file.
func TestFiguresKeepWhatTheFileHas(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "figures.json")
	if f, err := readFigures(file); err != nil || len(f.Ratios) > 0 {
		t.Fatalf("without a file: %+v, %v", f, err)
	}
	if err := (figures{Ratios: []row{{Scenario: "replay", Callers: 1}}}).write(file); err != nil {
		t.Fatal(err)
	}
	f, err := readFigures(file)
	if err != nil {
		t.Fatal(err)
	}
	f.Growth = []growth{{Rows: 10}}
	if err := f.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := readFigures(file)
	if diff := cmp.Diff(f.Ratios, got.Ratios, cmp.AllowUnexported(row{})); diff != "" || err != nil || len(got.Growth) != 1 {
		t.Errorf("ratios (-want +got):\n%s\n%v, growth %v", diff, err, got.Growth)
	}
}
