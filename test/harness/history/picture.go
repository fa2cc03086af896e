package history

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// Note is what a picture shows besides the events.
type Note struct {
	From, To int64
	Text     string
}

// Smallest returns the smallest run of groups of events that still violates the model: it
// leaves out groups at the end, then at the start. A group is what cannot be separated, such
// as an acquisition and its end.
func (m Model) Smallest(groups [][]Event) [][]Event {
	fails := func(groups [][]Event) bool { return m.Check(slices.Concat(groups...)) != "" }
	for size := len(groups) / 2; size > 0; {
		switch {
		case len(groups) > size && fails(groups[:len(groups)-size]):
			groups = groups[:len(groups)-size]
		case len(groups) > size && fails(groups[size:]):
			groups = groups[size:]
		default:
			size /= 2
		}
	}
	return groups
}

// Draw writes a page with the events of one name, and where they violate the model.
func (m Model) Draw(events []Event, notes []Note, file string) error {
	_, info := porcupine.CheckOperationsVerbose(m.porcupine(), m.operations(events), checkLimit)
	var annotations []porcupine.Annotation
	for _, n := range notes {
		annotations = append(annotations, porcupine.Annotation{Tag: "faults", Start: n.From, End: n.To, Description: n.Text})
	}
	info.AddAnnotations(annotations)
	return porcupine.VisualizePath(m.porcupine(), info, file)
}
