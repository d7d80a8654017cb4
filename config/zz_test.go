package config
import ("testing";"strings";"strconv";"time";"runtime")
func TestZZ(t *testing.T){
 try := func(name, head, line, tail string, sep string){
  mk := func(n int) string { var b strings.Builder; b.WriteString(head); for i:=0;i<n;i++{ b.WriteString(strings.ReplaceAll(line,"#",strconv.Itoa(i))) ; if b.Len()+len(tail)>MaxFileSize-600 {break}}; b.WriteString(tail); return b.String()}
  lo,hi:=0,400000
  for lo<hi { m:=(lo+hi+1)/2; if _,x:=overload([]byte(mk(m))); x=="" {lo=m} else {hi=m-1} }
  s:=mk(lo)
  var a,b runtime.MemStats; runtime.ReadMemStats(&a)
  st:=time.Now(); _,err:=Parse(File{Name:"x",Data:[]byte(s)}); d:=time.Since(st); runtime.ReadMemStats(&b)
  e:=err.Error(); if len(e)>100 {e=e[:100]}
  t.Logf("%-30s n=%d len=%d %v alloc %d MB  %s", name, lo, len(s), d, (b.TotalAlloc-a.TotalAlloc)>>20, e)
 }
 for _,p:=range []int{0,1,3,10,30,100,300} { try("dotted key "+strconv.Itoa(p), "", strings.Repeat("a.",p)+"k#=1\n","","") }
 for _,p:=range []int{1,3,10,30,100,300} { try("distinct dotted key "+strconv.Itoa(p), "", "k#."+strings.Repeat("a.",p)+"k=1\n","","") }
 for _,p:=range []int{1,3,10,30,100,300} { try("header "+strconv.Itoa(p), "", "["+strings.Repeat("a.",p)+"k#]\n","","") }
 for _,p:=range []int{1,3,10,30,100,300} { try("distinct header "+strconv.Itoa(p), "", "[k#"+strings.Repeat(".a",p)+"]\n","","") }
 for _,p:=range []int{1,3,10,30,100,300} { try("below header "+strconv.Itoa(p), "[a"+strings.Repeat(".a",p)+"]\n", "k#=1\n","","") }
 for _,p:=range []int{1,3,10,30} { try("inline "+strconv.Itoa(p), "", "k#="+strings.Repeat("{a=",p)+"1"+strings.Repeat("}",p)+"\n","","") }
 for _,p:=range []int{1,3,10,30} { try("list inline "+strconv.Itoa(p), "k="+strings.Repeat("{a=",p)+"[","{k#=1},","]"+strings.Repeat("}",p),"") }
 for _,p:=range []int{1,3,10,30} { try("list inline empty "+strconv.Itoa(p), "k="+strings.Repeat("{a=",p)+"[","{},","]"+strings.Repeat("}",p),"") }
 try("list inline empty long", strings.Repeat("k",500000)+"=[","{},","]","")
 try("list of lists long", strings.Repeat("k",500000)+"=[","[],","]","")
 try("list of lists deep", strings.Repeat("k",500000)+"=[","[[[[[]]]]],","]","")
}
