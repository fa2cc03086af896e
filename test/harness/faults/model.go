package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// model describes the legal sequences of events on one name, as if every event
// happened at a single instant. A history is legal if each event can be assigned
// such an instant between its From and its To.
type model struct {
	name  string
	kinds []string // the events that the model covers
	step  func(state any, d event) (legal bool, next any)
	start any
}

// models are the promises to check.
var models = []model{fenceModel, mutexModel, registerModel}

// fenceModel requires that every grant has a larger token than the grants before
// it.
var fenceModel = model{
	name:  "tokens rise",
	kinds: []string{acquired},
	start: uint64(0),
	step: func(last any, d event) (bool, any) {
		return d.Token > last.(uint64), d.Token
	},
}

// mutexModel requires that at most one worker at a time trusts its lease.
var mutexModel = model{
	name:  "one holder at a time",
	kinds: []string{acquired, ended},
	start: "",
	step: func(holder any, d event) (bool, any) {
		if d.Kind == acquired {
			return holder == "", d.Hold
		}
		return holder == d.Hold, ""
	},
}

// registerModel requires that the resource accepts a write exactly if no earlier
// write had a larger token.
var registerModel = model{
	name:  "no stale write",
	kinds: []string{wrote},
	start: uint64(0),
	step: func(largest any, d event) (bool, any) {
		fresh := d.Token >= largest.(uint64)
		if fresh {
			return d.OK, d.Token
		}
		return !d.OK, largest
	},
}

// checkLimit bounds the search for the instants of the events.
const checkLimit = time.Minute

// violations returns the violations of the models, one for each model and name.
func violations(events []event) (found []string) {
	names := make(map[string]bool)
	for _, d := range events {
		names[d.Name] = true
	}
	for _, m := range models {
		for name := range names {
			if v := m.check(name, events); v != "" {
				found = append(found, v)
			}
		}
	}
	slices.Sort(found)
	return found
}

// check returns the violation of the model by the events on one name, or "".
func (m model) check(name string, events []event) string {
	var ops []porcupine.Operation
	for i, d := range events {
		if d.Name == name && slices.Contains(m.kinds, d.Kind) {
			ops = append(ops, porcupine.Operation{ClientId: d.Worker, Input: d, Call: d.From, Return: d.To, Metadata: i})
		}
	}
	result, info := porcupine.CheckOperationsVerbose(porcupine.Model{
		Init: func() any { return m.start },
		Step: func(state, input, _ any) (bool, any) { return m.step(state, input.(event)) },
	}, ops, checkLimit)
	switch result {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("%s: %q: not decided within %v", m.name, name, checkLimit)
	default:
		return fmt.Sprintf("%s: %q: %s", m.name, name, explain(ops, info))
	}
}

// explain describes where the longest legal prefix of a history ends.
func explain(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partial := range slices.Concat(info.PartialLinearizationsOperations()...) {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	done := make(map[any]bool)
	for _, op := range longest {
		done[op.Metadata] = true
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	fmt.Fprintf(&b, "only %[2]d of %[1]d events form a legal sequence", len(ops), len(longest))
	const show = 4
	for _, op := range longest[max(0, len(longest)-show):] {
		fmt.Fprintf(&b, "\n\t%v", op.Input)
	}
	b.WriteString("\n    none of these can follow:")
	shown := 0
	for _, op := range ops {
		if !done[op.Metadata] && shown < show {
			fmt.Fprintf(&b, "\n\t%v", op.Input)
			shown++
		}
	}
	return b.String()
}
