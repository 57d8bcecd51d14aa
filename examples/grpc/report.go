package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc"
)

// report prints what happened, and returns an error unless every order has an
// answer and was charged exactly once.
func report(w io.Writer, attempts []*attempt, answers []answer, charges []string) error {
	charged := map[string]int{}
	for _, order := range charges {
		charged[order]++
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ORDER\tATTEMPT\tTHE SERVER\tITS ANSWER\tON THE WAY BACK")
	lost, wrong := 0, 0
	for _, a := range answers {
		number := 0
		for _, at := range attempts {
			if at.order != a.order {
				continue
			}
			number++
			if at.accident != none {
				lost++
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", at.order, number, did(at), said(at.err), at.accident)
		}
		if charged[a.order] != 1 || passing(a.err) {
			wrong++
		}
		fmt.Fprintf(table, "\t\t\t= %s\tcharged %s\n", end(a), times(charged[a.order]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d orders, %d attempts, %d answers lost, %d charges\n", len(answers), len(attempts), lost, len(charges))
	if wrong > 0 {
		return fmt.Errorf("%d of %d orders were not charged exactly once", wrong, len(answers))
	}
	fmt.Fprintln(w, "Every order was charged exactly once.")
	return nil
}

func did(a *attempt) string {
	switch {
	case a.ran:
		return "charged the card"
	case idemgrpc.ReasonOf(a.err) != "":
		return "did nothing"
	}
	return "replayed"
}

func said(err error) string {
	if reason := idemgrpc.ReasonOf(err); reason != "" {
		return fmt.Sprintf("%v %s", status.Code(err), reason)
	}
	return status.Code(err).String()
}

// end is what the client knows in the end.
func end(a answer) string {
	if status.Code(a.err) == codes.OK {
		return a.response.GetPayment()
	}
	return status.Convert(a.err).Message()
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d TIMES", n)
}
