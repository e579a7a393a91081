// The texts of the page in both languages, by key: [English, Korean]. {0} and {1} are filled in.
'use strict';
var brim = (function () {
  const texts = {
    // the frame
    experiments: ['Experiments', '실험'], queue: ['Queue', '대기열'], workers: ['Workers', '워커'],
    submit: ['Submit', '제출'], compare: ['Compare', '비교'], help: ['Keys', '단축키'],
    theme: ['Dark or light', '어둡게 또는 밝게'], language: ['한국어', 'English'], signOut: ['Sign out', '로그아웃'],
    away: ['Server away. Trying again in {0} s.', '서버에 연결할 수 없습니다. {0}초 후 다시 시도합니다.'],
    awayNow: ['Server away. Trying again.', '서버에 연결할 수 없습니다. 다시 시도합니다.'],
    diskFull: ['The disk of the server is full ({0} free). Workers keep their files and results, and try again.', '서버의 디스크가 가득 찼습니다(여유 {0}). 워커는 파일과 결과를 보관하고 다시 시도합니다.'],
    live: ['live', '실시간'], loading: ['Loading', '불러오는 중'], failedRequest: ['The server refused: {0}', '서버가 거부했습니다: {0}'],
    all: ['all', '전체'], close: ['Close', '닫기'], back: ['Back', '뒤로'], cancelDialog: ['Keep', '그대로 두기'],
    more: ['{0} more', '{0}개 더'],
    // signing in
    tokenNeeded: ['This server needs a token.', '이 서버에는 토큰이 필요합니다.'],
    token: ['Token', '토큰'], signIn: ['Sign in', '로그인'], tokenWrong: ['The server does not know this token.', '서버가 모르는 토큰입니다.'],
    tokenHint: ['brim serve token add NAME --role submit (read: to look only; admin: to drain workers too)', 'brim serve token add NAME --role submit (read: 보기 전용, admin: 워커 드레인 포함)'],
    // states
    queued: ['queued', '대기'], leased: ['starting', '시작 중'], running: ['running', '실행 중'], done: ['done', '완료'],
    failed: ['failed', '실패'], cancelled: ['cancelled', '취소됨'], paused: ['paused', '일시 중지'],
    pausing: ['pausing', '일시 중지하는 중'], cancelling: ['cancelling', '취소하는 중'],
    // why one failed, as in a terminal
    f_oom_planned: ['OOM (planned)', 'OOM (계획)'], f_oom_device: ['OOM', 'OOM'], f_oom_host: ['OOM (host)', 'OOM (호스트)'], f_shared_memory: ['no shared memory', '공유 메모리 없음'],
    f_bad_config: ['bad config', '잘못된 설정'], f_unsupported: ['unsupported', '지원하지 않음'], f_crash: ['crashed', '비정상 종료'], f_interrupted: ['stopped', '중단됨'], f_nan: ['NaN', 'NaN'],
    f_data: ['bad data', '잘못된 데이터'], f_killed: ['killed', '강제 종료'], f_hung: ['hung', '멈춤'], f_infrastructure: ['machine failed', '시스템 장애'], f_other: ['failed', '실패'],
    // why an experiment waits
    w_next: ['next in line', '다음 차례'], w_behind: ['behind {0}', '앞에 {0}개'], w_backoff: ['retries in {0}', '{0} 후 다시 시도'],
    w_paused: ['paused', '일시 중지'], w_no_worker: ['no worker', '워커 없음'], w_no_gpu: ['no worker has enough GPUs', 'GPU가 충분한 워커 없음'],
    w_no_memory: ['no GPU has enough memory', '메모리가 충분한 GPU 없음'], w_drain: ['workers are draining', '워커가 새 실험을 받지 않음'],
    w_lacks: ['waits for a worker that has its data', '데이터가 있는 워커를 기다림'],
    // the list
    search: ['Search (/)', '검색 (/)'], state: ['State', '상태'], grid: ['Grid', '그리드'], tag: ['Tag', '태그'], anyGrid: ['all grids', '모든 그리드'],
    anyTag: ['all tags', '모든 태그'], experiment: ['Experiment', '실험'], result: ['Result', '결과'], progress: ['Progress', '진행'],
    time: ['Time', '시간'], worker: ['Worker', '워커'], ended: ['Ended', '종료'], reason: ['Reason', '이유'], groups: ['Groups', '그룹'],
    list: ['List', '목록'], chart: ['Chart', '차트'], clear: ['Clear', '지우기'], shown: ['{0} of {1}', '{1}개 중 {0}개'],
    selected: ['{0} selected', '{0}개 선택'], selectedHidden: ['{0} more selected, hidden by the filters', '필터로 숨긴 선택 {0}개'], nothing: ['No experiment yet. Submit a grid, or run:', '아직 실험이 없습니다. 그리드를 제출하거나 다음을 실행하십시오:'],
    noneFits: ['No experiment passes the filters.', '필터에 맞는 실험이 없습니다.'], select: ['Select', '선택'],
    ago: ['{0} ago', '{0} 전'], now: ['now', '방금'], runs: ['Results', '결과'], nOf: ['n {0} of {1}', 'n {0}/{1}'], atStep: ['at step {0}', '스텝 {0}'], meanStd: ['Mean ± std', '평균 ± 표준편차'], best: ['Best', '최고'],
    states: ['States', '상태'], last: ['last', '마지막'], bestOf: ['best', '최고'], metric: ['Metric', '지표'], tooMany: ['The list shows {0} of {1} experiments.', '실험 {1}개 중 {0}개를 표시합니다.'],
    groupsN: ['{0} groups', '그룹 {0}개'], partial: ['Some experiments of this group have no result. It ranks behind groups that have all.', '결과가 없는 실험이 있는 그룹입니다. 모든 결과가 있는 그룹 뒤에 놓입니다.'],
    noGroups: ['No group has a result yet.', '결과가 있는 그룹이 아직 없습니다.'],
    // charts
    logScale: ['log', '로그'], smooth: ['smooth', '평활'], step: ['step', '스텝'], noCurve: ['No values yet.', '아직 값이 없습니다.'],
    chartedSome: ['Curves: {0}, of the first of {1} selected', '곡선 {0}개: 선택한 {1}개 중 앞쪽'],
    charted: ['Curves: {0}, of the selected', '곡선 {0}개: 선택한 실험'], chartedTop: ['Curves: {0}, of the first rows', '곡선 {0}개: 위쪽 행'],
    chartedGroups: ['Groups: {0}, mean ± std', '그룹 {0}개: 평균 ± 표준편차'],
    // actions
    cancel: ['Cancel', '취소'], pause: ['Pause', '일시 중지'], run: ['Continue', '계속'], retry: ['Retry', '다시 시도'],
    retryFailed: ['Retry failed ({0})', '실패 다시 시도 ({0})'], priority: ['Priority', '우선순위'], drain: ['Drain', '새 실험 중단'], undrain: ['Resume', '다시 받기'],
    askCancel: ['Cancel {0} experiments?', '실험 {0}개를 취소하시겠습니까?'], askCancelOne: ['Cancel this experiment?', '이 실험을 취소하시겠습니까?'],
    askRetryFailed: ['Queue {0} failed experiments again?', '실패한 실험 {0}개를 다시 대기열에 넣으시겠습니까?'],
    changed: ['{0} experiments changed', '실험 {0}개가 바뀌었습니다'], set: ['Set', '설정'],
    actions: ['Actions', '작업'],
    // one experiment
    config: ['Config', '설정'], diff: ['Differences', '차이'], allKeys: ['all keys', '모든 키'], onlyDiff: ['only differences', '차이만'],
    attempts: ['Attempts', '시도'], findings: ['Findings', '진단 결과'], log: ['Log', '로그'], files: ['Files', '파일'], noLog: ['No log yet.', '아직 로그가 없습니다.'],
    follow: ['follow', '따라가기'], stream: ['Stream', '스트림'], attemptN: ['attempt {0}', '시도 {0}'], attemptLast: ['attempt {0} (last)', '시도 {0}(마지막)'], host: ['Host', '호스트'], outcome: ['Outcome', '결과'], message: ['Message', '메시지'], from: ['From step', '시작 스텝'],
    started: ['Started', '시작'], created: ['Submitted', '제출'], epoch: ['Epoch', '에폭'], tries: ['Attempt', '시도'], tags: ['Tags', '태그'],
    checkpoint: ['Checkpoint', '체크포인트'], id: ['Id', 'ID'], gpus: ['GPUs', 'GPU'], o_open: ['open', '진행 중'], o_ok: ['ok', '정상'], o_error: ['error', '오류'],
    o_stopped: ['stopped', '중단됨'], o_expired: ['lease ended', '리스 만료'], size: ['Size', '크기'], name: ['Name', '이름'],
    costs: ['costs {0} ms per step', '스텝당 {0} ms 손실'], noFindings: ['No findings.', '진단 결과가 없습니다.'], gone: ['There is no experiment {0}.', '실험 {0}이(가) 없습니다.'],
    chooseSome: ['Select two or more experiments in the list (x), then compare them (c).', '목록에서 실험을 둘 이상 선택(x)한 뒤 비교(c)하십시오.'],
    comparedOf: ['{0} of {1} selected experiments: a comparison shows at most {0}.', '선택한 실험 {1}개 중 {0}개: 비교는 {0}개까지 표시합니다.'],
    unreadable: ['This address names no experiment.', '실험을 가리키지 않는 주소입니다.'],
    results: ['Results', '결과'], curves: ['Curves', '곡선'], same: ['These experiments have the same config.', '설정이 같은 실험입니다.'],
    // workers
    noWorkers: ['No worker has joined yet. On a machine with GPUs:', '아직 참여한 워커가 없습니다. GPU가 있는 시스템에서:'], seen: ['seen {0}', '{0} 연락'],
    draining: ['draining', '새 실험 중단됨'], lacks: ['cannot run {0}', '{0} 실행 불가'], silent: ['silent', '응답 없음'], util: ['GPU', 'GPU'], memory: ['Memory', '메모리'], power: ['Power', '전력'], cpu: ['CPU', 'CPU'], temp: ['Temp.', '온도'],
    idle: ['idle', '유휴'], runningN: ['{0} running', '{0}개 실행 중'], noGpu: ['no GPU reported', '보고된 GPU 없음'],
    leftOne: ['1 worker left', '떠난 워커 1개'], leftN: ['{0} workers left', '떠난 워커 {0}개'],
    // queue
    waits: ['Waits because', '대기 이유'], emptyQueue: ['The queue is empty.', '대기열이 비어 있습니다.'], place: ['#', '#'], needs: ['Needs', '필요'],
    // submitting
    yaml: ['Grid (YAML)', '그리드 (YAML)'], check: ['Check', '확인'], submitN: ['Submit {0} experiments', '실험 {0}개 제출'], optional: ['optional', '선택 사항'],
    wouldAdd: ['{0} experiments: {1} new', '실험 {0}개: 새 실험 {1}개'], added: ['{0} experiments submitted', '실험 {0}개를 제출했습니다'],
    firstPoints: ['First points', '처음 몇 개'], noRight: ['Your token may not submit. Ask for the role submit.', '이 토큰으로는 제출할 수 없습니다. submit 역할이 필요합니다.'],
    lineColumn: ['line {0}, column {1}', '{0}행 {1}열'], checkHint: ['Check shows the experiments without queueing them.', '확인은 대기열에 넣지 않고 실험을 보여 줍니다.'],
    warnings: ['Warnings', '경고'],
    exampleTitle: ['Example', '예시'],
    exampleText: ['A grid is a config in which values may be lists. Each combination of the values is one experiment.', '그리드는 값에 목록을 쓸 수 있는 설정입니다. 값의 조합마다 실험이 하나씩 만들어집니다.'],
    exampleNext: ['Check lists the experiments here, with their configs and warnings.', '확인을 누르면 실험 목록과 설정, 경고가 여기에 표시됩니다.'],
    exampleInsert: ['Insert example', '예시 넣기'], askReplace: ['Replace the text of the grid by the example?', '그리드 내용을 예시로 바꾸시겠습니까?'], replace: ['Replace', '바꾸기'],
    // keys
    k_move: ['move', '이동'], k_open: ['open', '열기'], k_select: ['select', '선택'], k_all: ['select all shown', '표시된 것 모두 선택'], k_compare: ['compare the selected', '선택한 것 비교'],
    k_search: ['search', '검색'], k_back: ['back, or clear the selection', '뒤로, 또는 선택 해제'], k_go: ['experiments, queue, workers, submit', '실험, 대기열, 워커, 제출'],
    k_groups: ['groups on and off', '그룹 켜기와 끄기'], k_theme: ['dark or light', '어둡게 또는 밝게'], k_language: ['English or Korean', '영어 또는 한국어'], k_help: ['this list', '이 목록'], k_chart: ['chart on and off', '차트 켜기와 끄기'],
    // spans of time
    s: ['{0} s', '{0}초'], min: ['{0} min', '{0}분'], hour: ['{0} h {1} min', '{0}시간 {1}분'], day: ['{0} d', '{0}일'],
  };
  function remembered(key) { try { return localStorage.getItem('brim.' + key); } catch (e) { return null; } }
  function remember(key, value) { try { localStorage.setItem('brim.' + key, value); } catch (e) { /* a private window */ } }
  let language = remembered('language') || ((navigator.language || '').startsWith('ko') ? 'ko' : 'en');
  function t(key, a, b) {
    const row = texts[key];
    if (!row) return key;
    return row[language === 'ko' ? 1 : 0].replaceAll('{0}', () => a).replaceAll('{1}', () => b);
  }
  return {
    t, texts, remember, remembered,
    has: (key) => key in texts,
    language: () => language,
    setLanguage(name) { language = name; remember('language', name); document.documentElement.lang = name; },
  };
})();
