package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readJSON reads what printJSON wrote. The results have no rounds.
func readJSON(r io.Reader) (results []result, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(results)+1, err)
		}
		found := result{figures: make(figures)}
		for name, value := range line {
			switch value := value.(type) {
			case float64:
				found.figures[name] = value
			case string:
				switch name {
				case "case":
					found.kase = value
				case "subject":
					found.subject = value
				case "failure":
					found.failure = value
				}
			}
		}
		if found.kase == "" || found.subject == "" {
			return nil, fmt.Errorf("line %d: %w", len(results)+1, errors.New("no case or no subject"))
		}
		results = append(results, found)
	}
	return results, lines.Err()
}
