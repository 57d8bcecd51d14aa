package main

import (
	"context"
	"log"
	"os"
	"time"
)

// A plan is what one run measures, and where the figures go.
type plan struct {
	ratios        bool
	rounds        int
	stretch       time.Duration
	callers, only string
	away          time.Duration // of the server, there and back

	growth     string // sizes of tables, if any
	buffers    string // of the server that they stand on
	purge      int    // expired rows to purge beside callers
	design     bool
	designRows int

	out, plots string // file and folder, if any
	short      bool
}

// shorten makes everything run, in less than a minute.
func (p *plan) shorten() {
	p.short, p.ratios, p.design = true, true, true
	p.rounds, p.stretch, p.callers = 1, 100*time.Millisecond, "1,16"
	p.growth, p.purge, p.designRows = "1000,10000", 1000, 2000
}

func (p *plan) run(ctx context.Context) error {
	if p.short && p.plots == "" {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		p.plots = dir
	}
	var f figures
	if p.out != "" {
		var err error
		if f, err = readFigures(p.out); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context, *figures) error{p.measureRatios, p.measureGrowth, p.measureDesign} {
		if err := step(ctx, &f); err != nil {
			return err
		}
		if p.out != "" {
			if err := f.write(p.out); err != nil {
				return err
			}
		}
	}
	if p.plots != "" {
		return f.draw(p.plots)
	}
	return nil
}

func (p *plan) measureRatios(ctx context.Context, f *figures) (err error) {
	switch {
	case p.ratios && p.away > 0:
		f.Away, err = bench(ctx, p)
	case p.ratios:
		f.Ratios, err = bench(ctx, p)
	}
	return err
}

func (p *plan) measureGrowth(ctx context.Context, f *figures) error {
	if p.growth == "" {
		return nil
	}
	sizes, err := parseSizes(p.growth)
	if err != nil {
		return err
	}
	url, stop := startServer(p.buffers)
	defer stop()
	pool, err := connect(ctx, url, 16, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	rounds := 2*p.rounds + 1
	all, tables, err := measureGrowth(ctx, pool, sizes, rounds, p.stretch)
	if err != nil {
		return err
	}
	f.Growth = all
	printGrowth(all)
	if f.UnderPurge, err = measureUnderPurge(ctx, tables[len(tables)-1], 16, p.purge, 4*p.stretch); err != nil {
		return err
	}
	f.UnderPurge.print()
	return nil
}

// progress says what is going on, apart from the figures.
func progress(format string, args ...any) { log.Printf(format, args...) }
