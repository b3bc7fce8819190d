package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// StageInputs are the topics that a stage's tasks read: task n reads partition n of each, so they stay together.
type StageInputs struct {
	Stage  string
	Tasks  int32
	Topics []string
}

// ProtocolName names the assignment rule and the layout of its user data.
const ProtocolName = "strandline-tasks-1"

// memberData is what a member tells the leader besides its topics, as JSON.
type memberData struct {
	// Stages must be equal for all members: a rolling change of the topology has no assignment that suits both.
	Stages []StageInputs `json:"stages"`
	// Owned are the tasks of the member's last assignment, which it gets again if that is fair.
	Owned []Task `json:"owned,omitempty"`
}

// Task names a task by stage and number.
type Task struct {
	Stage  string `json:"stage"`
	Number int32  `json:"number"`
}

// taskBalancer implements kgo.GroupBalancer with whole tasks as the unit. It is eager: everything is revoked before a
// rebalance, so that the commit of a revoke covers the whole worker and a generation never changes under a task.
type taskBalancer struct{ stages []StageInputs }

func (*taskBalancer) ProtocolName() string { return ProtocolName }
func (*taskBalancer) IsCooperative() bool  { return false }

func (b *taskBalancer) JoinGroupMetadata(_ []string, owned map[string][]int32, _ int32) []byte {
	var tasks []Task
	for _, s := range b.stages {
		for _, n := range owned[s.Topics[0]] {
			tasks = append(tasks, Task{s.Stage, n})
		}
	}
	return JoinMetadata(b.stages, tasks)
}

// JoinMetadata is what a member tells the group's leader: its stages, and the tasks of its last assignment.
func JoinMetadata(stages []StageInputs, owned []Task) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 1
	for _, s := range stages {
		meta.Topics = append(meta.Topics, s.Topics...)
	}
	slices.Sort(meta.Topics)
	meta.Topics = slices.Compact(meta.Topics)
	meta.UserData, _ = json.Marshal(memberData{Stages: stages, Owned: owned}) // strings and numbers only
	return meta.AppendTo(nil)
}

func (*taskBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

// ParseAssignment reads what SyncGroup gives a member.
func ParseAssignment(assignment []byte) ([]TopicPartition, error) {
	p, err := kgo.ParseConsumerSyncAssignment(assignment)
	return flat(p), err
}

func (b *taskBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	mb, err := newBalance(b.stages, members)
	if err != nil {
		return nil, nil, err
	}
	topics := make(map[string]struct{})
	for _, s := range b.stages {
		for _, t := range s.Topics {
			topics[t] = struct{}{}
		}
	}
	return mb, topics, nil
}

// Balance is the leader's part: who gets which tasks, from what all members told.
func Balance(stages []StageInputs, members []kmsg.JoinGroupResponseMember) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	mb, err := newBalance(stages, members)
	if err != nil {
		return nil, err
	}
	return mb.Balance(nil).IntoSyncAssignment(), nil
}

func newBalance(stages []StageInputs, members []kmsg.JoinGroupResponseMember) (*memberBalance, error) {
	if len(members) == 0 {
		return nil, errors.New("kafka: this member is to balance a group that the broker says is empty")
	}
	mb := &memberBalance{stages: stages}
	for _, m := range members {
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(m.ProtocolMetadata); err != nil {
			return nil, fmt.Errorf("kafka: member %s sent metadata that cannot be read: %w", m.MemberID, err)
		}
		var data memberData
		if err := json.Unmarshal(meta.UserData, &data); err != nil {
			return nil, fmt.Errorf("kafka: member %s sent user data that cannot be read: %w", m.MemberID, err)
		}
		if !slices.EqualFunc(data.Stages, stages, equalStages) {
			return nil, &TopologyError{MemberID: m.MemberID}
		}
		mb.members = append(mb.members, m.MemberID)
		mb.owned = append(mb.owned, data.Owned)
	}
	return mb, nil
}

func equalStages(a, b StageInputs) bool {
	return a.Stage == b.Stage && a.Tasks == b.Tasks && slices.Equal(a.Topics, b.Topics)
}

// memberBalance assigns the tasks of one generation.
type memberBalance struct {
	stages  []StageInputs
	members []string
	owned   [][]Task
}

// Balance implements kgo.GroupMemberBalancer. The topic sizes are not needed: task counts come from the plan, and a
// task whose partition does not exist finds out when it restores.
func (mb *memberBalance) Balance(map[string]int32) kgo.IntoSyncAssignment {
	plan := make(syncPlan, len(mb.members))
	for i, tasks := range assign(mb.stages, mb.owned) {
		a := kmsg.NewConsumerMemberAssignment()
		a.Version = 0
		partitions := make(map[string][]int32)
		for _, t := range tasks {
			for _, s := range mb.stages {
				if s.Stage != t.Stage {
					continue
				}
				for _, topic := range s.Topics {
					partitions[topic] = append(partitions[topic], t.Number)
				}
			}
		}
		for _, s := range mb.stages {
			for _, topic := range s.Topics {
				if ps, ok := partitions[topic]; ok {
					at := kmsg.NewConsumerMemberAssignmentTopic()
					at.Topic, at.Partitions = topic, ps
					a.Topics = append(a.Topics, at)
				}
			}
		}
		plan[i] = kmsg.SyncGroupRequestGroupAssignment{MemberID: mb.members[i], MemberAssignment: a.AppendTo(nil)}
	}
	return plan
}

type syncPlan []kmsg.SyncGroupRequestGroupAssignment

func (p syncPlan) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return p }

// assign spreads the tasks of each stage over the members, so that two members differ by at most one task of a stage.
// A task stays where it was as long as that is fair; owned[i] is what member i had. The same input gives the same
// assignment.
func assign(stages []StageInputs, owned [][]Task) [][]Task {
	s := &spread{tasks: make([][]Task, len(owned)), total: make([]int, len(owned))}
	for _, st := range stages {
		s.stage(st, owned)
	}
	return s.tasks
}

type spread struct {
	tasks [][]Task
	total []int
}

func (s *spread) stage(st StageInputs, owned [][]Task) {
	of := make([]int, len(owned)) // tasks of this stage, by member
	floor, extra := int(st.Tasks)/len(owned), int(st.Tasks)%len(owned)
	give := func(member int, n int32) {
		s.tasks[member] = append(s.tasks[member], Task{st.Stage, n})
		of[member]++
		s.total[member]++
		if of[member] == floor+1 {
			extra--
		}
	}
	room := func(member int) bool { return of[member] < floor || of[member] == floor && extra > 0 }
	given := make([]bool, st.Tasks)
	for m, tasks := range owned {
		for _, t := range tasks {
			if t.Stage == st.Stage && t.Number >= 0 && t.Number < st.Tasks && !given[t.Number] && room(m) {
				given[t.Number] = true
				give(m, t.Number)
			}
		}
	}
	for n := range st.Tasks {
		if given[n] {
			continue
		}
		least := -1
		for m := range owned {
			if room(m) && (least < 0 || of[m] < of[least] || of[m] == of[least] && s.total[m] < s.total[least]) {
				least = m
			}
		}
		give(least, n)
	}
}
