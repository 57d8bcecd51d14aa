package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// figures are all that has been measured. A part that a run does not measure
// stays as the file has it.
type figures struct {
	Ratios     []row         `json:",omitempty"`
	Away       []row         `json:",omitempty"` // the same with the server further away
	Growth     []growth      `json:",omitempty"`
	UnderPurge *underPurge   `json:",omitempty"`
	Design     []designTable `json:",omitempty"`
	Room       []room        `json:",omitempty"`
	Churn      []churn       `json:",omitempty"`
}

func readFigures(file string) (f figures, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, err
}

func (f figures) write(file string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
