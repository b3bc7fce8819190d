package world

import "slices"

// maxShrinkRuns bounds how often Shrink runs a seed.
const maxShrinkRuns = 1500

// Shrink leaves out faults and clients, and lets faults end earlier, as long as the same check fails. It returns what is
// left and how that fails; a run that does not fail is returned as it is.
func Shrink(o Options) (Options, Result) {
	o.Trace = nil
	s := shrinker{opts: o, last: Run(o), runs: 1}
	if s.last.Err == nil {
		return o, s.last
	}
	s.check = Check(s.last.Err)
	for size := -1; size != s.size() && s.runs < maxShrinkRuns; {
		size = s.size()
		s.leaveOutFaults()
		s.leaveOutClients()
		s.endFaultsEarlier()
	}
	return s.opts, s.last
}

type shrinker struct {
	opts  Options
	last  Result // of opts
	check string
	runs  int
}

func (s *shrinker) size() int { return len(s.last.Faults) + len(s.last.Clients) }

// try takes o over if it fails as before.
func (s *shrinker) try(o Options) bool {
	if s.runs++; s.runs > maxShrinkRuns {
		return false
	}
	r := Run(o)
	if r.Err == nil || Check(r.Err) != s.check {
		return false
	}
	s.opts, s.last = o, r
	return true
}

func (s *shrinker) leaveOutFaults() {
	reduce(len(s.last.Faults), func(from, to int) (int, bool) {
		o := s.opts
		o.WithoutFaults = append(slices.Clone(o.WithoutFaults), s.last.Faults[from:to]...)
		return len(s.last.Faults) - (to - from), s.try(o)
	})
}

// leaveOutClients keeps those that a run cannot do without.
func (s *shrinker) leaveOutClients() {
	needed := []string{setupClient, judgeClient}
	optional := func() []string {
		return slices.DeleteFunc(slices.Clone(s.last.Clients), func(c string) bool { return slices.Contains(needed, c) })
	}
	reduce(len(optional()), func(from, to int) (int, bool) {
		o, all := s.opts, optional()
		o.WithoutClients = append(slices.Clone(o.WithoutClients), all[from:to]...)
		ok := s.try(o)
		return len(optional()), ok
	})
}

func (s *shrinker) endFaultsEarlier() {
	for ms := int64(1); ms < faultsForUs/msInUs; ms *= 2 {
		if s.opts.FaultsMs > 0 && ms >= s.opts.FaultsMs {
			return
		}
		o := s.opts
		o.FaultsMs = ms
		if s.try(o) {
			return
		}
	}
}

// reduce offers ever smaller parts of n things to be left out. leaveOut reports whether they are, and how many things
// there are then.
func reduce(n int, leaveOut func(from, to int) (left int, ok bool)) {
	for step := (n + 1) / 2; step > 0; step /= 2 {
		for from := 0; from < n; {
			to := min(from+step, n)
			if left, ok := leaveOut(from, to); ok {
				n = left
			} else {
				from = to
			}
		}
	}
}
